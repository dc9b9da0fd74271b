-- claim_due: due deliveries are this sender's until the claim runs out; nothing is removed
-- KEYS  1 due zset
-- ARGV  1 now_ms or 0   2 most   3 claim ms
-- Reply now_ms, next-due-ms or '', then ids
-- Events none
-- Guard none: a sender that dies loses its claim by time
local function claim_due(keys, args)
  local now = now_ms(args[1])
  local ids = redis.call('ZRANGEBYSCORE', keys[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, args[2])
  for _, id in ipairs(ids) do redis.call('ZADD', keys[1], string.format('%.0f', now + args[3]), id) end
  local next_due = redis.call('ZRANGE', keys[1], 0, 0, 'WITHSCORES')[2] or ''
  return {string.format('%.0f', now), next_due, unpack(ids)}
end
register('claim_due', claim_due, {'allow-oom'})
