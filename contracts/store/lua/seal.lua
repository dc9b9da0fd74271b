-- seal: a segment that is kept counts: the log is archived up to its last entry
-- KEYS  1 archive hash   2.. zsets of ended jobs, one for each kind
-- ARGV  1 now_ms or 0   2 token   3 upto the caller saw   4 new upto   5 digest after it   6 entries in the segment
--       7 JSON: for each job whose run ended, or began again, in it: {job, KEYS index of its zset or 0 (it runs again), ms}
-- Reply APPLIED upto | FENCED | CONFLICT upto
-- Events none
-- Guard another token; another upto than expected; the same seal again is answered as it was
local function seal(keys, args)
  local h = redis.call('HMGET', keys[1], 'token', 'upto', 'digest')
  if h[1] ~= args[2] then return {WORDS.fenced} end
  if h[2] == args[4] and h[3] == args[5] then return {WORDS.applied, h[2]} end
  if h[2] ~= args[3] then return {WORDS.conflict, h[2]} end
  for _, job in ipairs(cjson.decode(args[7])) do
    for i = 2, #keys do
      if i == job[2] then redis.call('ZADD', keys[i], job[3], job[1]) else redis.call('ZREM', keys[i], job[1]) end
    end
  end
  redis.call('HSET', keys[1], 'upto', args[4], 'digest', args[5], 'sealed_ms', string.format('%.0f', now_ms(args[1])))
  redis.call('HINCRBY', keys[1], 'count', args[6])
  return {WORDS.applied, args[4]}
end
register('seal', seal, {'allow-oom'})
