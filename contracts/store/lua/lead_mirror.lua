-- lead_mirror: this token copies the pool's log to Kafka, and the log is kept from its cursor on
-- KEYS  1 mirror hash   2 log stream   3 meta hash
-- ARGV  1 now_ms or 0   2 token   3 lease ms   4 topic   5 why nothing is copied at the moment, or ''   6 failures since the last call
-- Reply APPLIED cursor epoch | REFUSED ms-left | CONFLICT topic (it goes to another one) | GONE (the pool has no log)
-- Events none
-- Guard another token's lease that has not run out; a cursor beyond the end of a log that lost its tail goes back to that end
local function lead_mirror(keys, args)
  if redis.call('EXISTS', keys[2]) == 0 then return {WORDS.gone} end
  local now = now_ms(args[1])
  local h = redis.call('HMGET', keys[1], 'token', 'until', 'topic', 'reason')
  if h[3] and h[3] ~= args[4] then return {WORDS.conflict, h[3]} end
  local left = tonumber(h[2] or 0) - now
  if h[1] and h[1] ~= args[2] and left > 0 then return {WORDS.refused, string.format('%.0f', left)} end
  local cursor, last = redis.call('HGET', keys[3], 'cursor:mirror') or '0-0', about_log(keys[2])['last-generated-id']
  if before(last, cursor) then
    cursor = last
    redis.call('HSET', keys[3], 'cursor:mirror', cursor)
  end
  stand(keys[2], 'mirror', cursor)
  redis.call('HSET', keys[1], 'token', args[2], 'until', string.format('%.0f', now + args[3]), 'topic', args[4], 'reason', args[5])
  redis.call('HINCRBY', keys[1], 'failures', args[6])
  return {WORDS.applied, cursor, redis.call('HGET', keys[3], 'epoch') or '1'}
end
register('lead_mirror', lead_mirror, {'allow-oom'})
