-- take_upload: a tenant announces a file, within what it may send in a day
-- KEYS  1 uploads hash
-- ARGV  1 now_ms or 0   2 MiB a day   3 MiB of this file
-- Reply APPLIED MiB-left | REFUSED 0 ms-until-it-fits
-- Events none
-- Guard a bucket of a day's worth, filled evenly by the server's time; a refusal takes nothing
local DAY_MS = 86400000  -- parts of a MiB, so that the bucket holds whole numbers only

local function take_upload(keys, args)
  local per_day = tonumber(args[2])
  local left, wait_ms = take_parts(keys[1], per_day * DAY_MS, per_day, now_ms(args[1]), tonumber(args[3]) * DAY_MS)
  if wait_ms then return {WORDS.refused, '0', string.format('%.0f', wait_ms)} end
  return {WORDS.applied, string.format('%.0f', math.floor(left / DAY_MS))}
end
register('take_upload', take_upload, {})
