-- requeue: a delivery that waits is in its queue, so that somebody sends it, and has as many tries as the log tells of
-- KEYS  1 log stream   2 meta hash   3 prefix of deliveries
-- ARGV  1 now_ms or 0   2 write id   3 epoch of the log that was folded   4 id   5 endpoint   6 tries as they were seen, '' leaves them
--       7 tries by the log   8 write (prelude): projection.rebuilt
-- Reply APPLIED position | CONFLICT | GONE | REFUSED: it is where it belongs
-- Events as given
-- Guard the epoch; the tries as they were seen; a write id seen before is answered again
local function place_again(at, name, job, id, n, after, now)
  local chain, key = at .. 'chain:' .. name .. ':' .. job, at .. 'delivery:' .. id
  if n and not redis.call('ZSCORE', chain, id) then
    redis.call('ZADD', chain, n, id)
    redis.call('EXPIRE', chain, KEEP_CHAIN_S)
  end
  if n and redis.call('ZRANGE', chain, 0, 0)[1] ~= id then
    return redis.call('HSET', key, 'state', 'blocked', 'after', as_ms(math.max(now, after)))
  end
  redis.call('HSET', key, 'state', 'waiting')
  redis.call('ZADD', at .. 'due:' .. name, as_ms(math.max(now, after)), id)
end

local function is_queued(at, name, job, id, state)
  if state == 'waiting' then
    return redis.call('ZSCORE', at .. 'due:' .. name, id) and redis.call('ZSCORE', at .. 'due', name)
  end
  local chain = at .. 'chain:' .. name .. ':' .. job
  return redis.call('ZSCORE', chain, id) and redis.call('ZRANGE', chain, 0, 0)[1] ~= id
end

local function requeue(keys, args)
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  if redis.call('HGET', keys[2], 'epoch') ~= args[3] then return {WORDS.conflict} end
  local at, now, id, name = keys[3], now_ms(args[1]), args[4], args[5]
  local h = job_fields(at .. 'delivery:' .. id, 'state', 'try', 'job', 'n', 'after', 'tenant')
  if not h[1] then return {WORDS.gone} end
  if args[6] ~= '' and h[2] ~= args[6] then return {WORDS.conflict} end
  if args[6] ~= '' then redis.call('HSET', at .. 'delivery:' .. id, 'try', args[7]) end
  local waits = h[1] == 'waiting' or h[1] == 'blocked'
  local is_lost = waits and not is_queued(at, name, h[3] or '', id, h[1])
  if args[6] == '' and not is_lost then return {WORDS.refused} end
  if is_lost then
    if not redis.call('ZSCORE', at .. 'due:' .. name, id) then
      place_again(at, name, h[3] or '', id, tonumber(h[4] or ''), tonumber(h[5] or 0), now)
    end
    know(at, name, h[6] or '', now)
  end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[8]))
  keep_op(keys[2], args[2], p)
  return {WORDS.applied, p}
end
register('requeue', requeue, {'allow-oom'})
