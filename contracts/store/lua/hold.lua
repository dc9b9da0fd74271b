-- hold: claims of deliveries that are not settled run out this much later from now; 0 gives them back
-- KEYS  1 due zset
-- ARGV  1 now_ms or 0   2 claim ms   3.. ids
-- Reply APPLIED count
-- Events none
-- Guard one that was settled meanwhile is no longer in the zset and does not come back
local function hold(keys, args)
  local at, count = string.format('%.0f', now_ms(args[1]) + args[2]), 0
  for i = 3, #args do count = count + redis.call('ZADD', keys[1], 'XX', 'CH', at, args[i]) end
  return {WORDS.applied, count}
end
register('hold', hold, {'allow-oom'})
