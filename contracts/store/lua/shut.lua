-- shut: nothing is granted of an external limit for so long: its provider said "not now"
-- KEYS  1 resource hash
-- ARGV  1 now_ms or 0   2 pause ms
-- Reply APPLIED until-ms
-- Events none
-- Guard a longer pause stays
local function shut(keys, args)
  local now = now_ms(args[1])
  local ends = math.max(tonumber(redis.call('HGET', keys[1], 'p') or 0), now + tonumber(args[2]))
  redis.call('HSET', keys[1], 'p', string.format('%.0f', ends))
  redis.call('PEXPIRE', keys[1], math.max(redis.call('PTTL', keys[1]), ends - now + 1000))
  return {WORDS.applied, string.format('%.0f', ends)}
end
register('shut', shut, {'allow-oom'})
