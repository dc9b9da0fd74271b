-- lead: this token is the leader's, from turn 0 on
-- KEYS  1 leader hash
-- ARGV  1 now_ms or 0   2 token   3 lease ms
-- Reply APPLIED epoch turn | REFUSED ms-left
-- Events none
-- Guard another token's lease that has not run out
local function lead(keys, args)
  local now = now_ms(args[1])
  local h = redis.call('HMGET', keys[1], 'token', 'until', 'epoch', 'turn')
  if h[1] == args[2] then
    redis.call('HSET', keys[1], 'until', string.format('%.0f', now + args[3]))
    return {WORDS.applied, h[3], h[4]}
  end
  local left = tonumber(h[2] or 0) - now
  if h[1] and left > 0 then return {WORDS.refused, string.format('%.0f', left)} end
  local epoch = tonumber(h[3] or 0) + 1
  redis.call('HSET', keys[1], 'token', args[2], 'until', string.format('%.0f', now + args[3]), 'epoch', epoch, 'turn', 0)
  redis.call('HDEL', keys[1], 'verdicts')
  return {WORDS.applied, epoch, '0'}
end
register('lead', lead, {'allow-oom'})
