-- mend_endpoint: its owner changed an endpoint: its failures so far count no more, and what is due goes at once
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 endpoint
-- Reply APPLIED
-- Events none
-- Guard none
local function mend_endpoint(keys, args)
  redis.call('HDEL', keys[1] .. 'endpoint:' .. args[2], 'row', 'since', 'warned', 'open', 'gate')
  rescore(keys[1], args[2], now_ms(args[1]))
  return {WORDS.applied}
end
register('mend_endpoint', mend_endpoint, {'allow-oom'})
