-- admit: a job is durable: its first events, state, body and list entry, all or nothing
-- KEYS  1 log stream   2 job hash   3 body string   4 tenant's list zset   5 usage hash   6 admitted string
-- ARGV  1 now_ms or 0   2 write (prelude)   3 body   4 tenant   5-8 limits: tenant jobs, tenant bytes, pool jobs, pool bytes
--       9 deadline in server ms or 0: after it nobody waits for the answer any more
--       10 '' or JSON of a dedup key: i, t KEYS index of the hash and of the string that hold keys, f its field in the hash,
--          ttl ms for which it is held (0: while the job is in flight), keep s for which the id stays a name of the other job
-- Reply APPLIED position sequence | APPLIED '' 0 same-as other-id (the key is held by that job) | REFUSED limit used | GONE refused-before | GONE too-late | GONE no-log
-- Events as given: job.created, and job.scheduled when it has a run-at time
-- Guard an id admitted before is APPLIED before any limit is looked at; one marked refused is never admitted; so with a
--       dedup key that is held, and an id that once stood for another job does so again
local function admit(keys, args)
  if redis.call('EXISTS', keys[2]) == 1 then
    local n, p = last_of(keys[2])
    return {WORDS.applied, p, n, 'repeat'}
  end
  local mark = redis.call('GET', keys[6])
  if mark == 'refused' then return {WORDS.gone, 'refused-before'} end
  if mark and string.sub(mark, 1, 3) == 'as ' then return {WORDS.applied, '', '0', 'same-as', string.sub(mark, 4)} end
  if mark then return {WORDS.applied, mark, '0', 'forgotten'} end
  -- a call that lay in a frozen server's socket was answered 503 long ago: it must not become a job now
  if args[9] ~= '0' and now_ms('0') > tonumber(args[9]) then return {WORDS.gone, 'too-late'} end
  if redis.call('EXISTS', keys[1]) == 0 then return {WORDS.gone, 'no-log'} end
  local once = args[10] ~= '' and cjson.decode(args[10]) or nil
  local holder = once and (redis.call('HGET', keys[once.i], once.f) or redis.call('GET', keys[once.t]))
  if holder then
    if once.keep > 0 then redis.call('SET', keys[6], 'as ' .. holder, 'EX', once.keep) end
    return {WORDS.applied, '', '0', 'same-as', holder}
  end
  local limit, used = over_limit(keys[5], keys[4], args[4], #args[3], {unpack(args, 5, 8)})
  if limit then return {WORDS.refused, limit, used} end
  local w = cjson.decode(args[2])
  w.k = 2
  local p, n = append(keys, keys[1], id_for(args[1]), w)
  redis.call('SET', keys[3], args[3])
  redis.call('ZADD', keys[4], 0, w.j)
  count(keys[5], keys[2], 1)
  if once and once.ttl > 0 then
    redis.call('SET', keys[once.t], w.j, 'PX', once.ttl)
  elseif once then
    redis.call('HSET', keys[once.i], once.f, w.j)
  end
  return {WORDS.applied, p, n}
end
register('admit', admit, {})
