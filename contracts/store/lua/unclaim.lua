-- unclaim: deliveries claimed but not settled are due at once, for whoever asks next
-- KEYS  1 due zset
-- ARGV  1 now_ms or 0   2.. ids
-- Reply APPLIED count
-- Events none
-- Guard one that was settled meanwhile is no longer in the zset and does not come back
local function unclaim(keys, args)
  local now, count = string.format('%.0f', now_ms(args[1])), 0
  for i = 2, #args do count = count + redis.call('ZADD', keys[1], 'XX', 'CH', now, args[i]) end
  return {WORDS.applied, count}
end
register('unclaim', unclaim, {'allow-oom'})
