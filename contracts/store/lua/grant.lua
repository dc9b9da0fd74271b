-- grant: a pool may start so many jobs that draw on an external limit: at most `rate` tokens in any window, over all pools
-- KEYS  1 resource hash
-- ARGV  1 now_ms or 0   2 rate   3 window ms   4 tokens wanted   5 ms for which they should hold
-- Reply APPLIED granted ms-until-more until-when-they-hold
-- Events none
-- Guard a pause of the provider; tokens that may be used in the window that ends now. A lost reply loses tokens
local PARTS = 32  -- of a window: grants of one part are counted together, as if all were used at its end

local function grant(keys, args)
  local now, rate, window = now_ms(args[1]), tonumber(args[2]), tonumber(args[3])
  local h = redis.call('HMGET', keys[1], 'g', 'p')
  local paused_ms = tonumber(h[2] or 0) - now
  if paused_ms > 0 then return {WORDS.applied, '0', string.format('%.0f', paused_ms), '0'} end
  local kept, used = {}, 0
  for _, part in ipairs(cjson.decode(h[1] or '[]')) do
    if part[1] > now - window then kept[#kept + 1], used = part, used + part[2] end
  end
  local n = math.max(0, math.min(tonumber(args[4]), rate - used))
  local size, last = math.max(1, math.floor(window / PARTS)), kept[#kept]
  local ends = (math.floor((now + tonumber(args[5])) / size) + 1) * size - 1
  if last and last[1] > ends then ends = last[1] end
  if n > 0 then
    if last and last[1] == ends then last[2] = last[2] + n else kept[#kept + 1] = {ends, n} end
    redis.call('HSET', keys[1], 'g', cjson.encode(kept))
    redis.call('PEXPIRE', keys[1], ends - now + window + 1000)
  end
  local more = n < tonumber(args[4]) and kept[1] and math.max(1, kept[1][1] + window - now) or 0
  return {WORDS.applied, string.format('%.0f', n), string.format('%.0f', more), string.format('%.0f', ends)}
end
register('grant', grant, {'allow-oom'})
