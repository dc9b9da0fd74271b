-- erase_live: what a job printed is not in the pool's live stream any more, nor with those who read it there
-- KEYS  1 live stream
-- ARGV  1 job   2 offset that says so   3, 4 since and until when it may have printed (ms)
-- Reply APPLIED count
-- Events none
-- Guard none
local function erase_live(keys, args)
  local gone = {}
  for _, entry in ipairs(redis.call('XRANGE', keys[1], args[3], args[4])) do
    local is_mine, offset = false, ''
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'j' then is_mine = entry[2][i + 1] == args[1] end
      if entry[2][i] == 'o' then offset = entry[2][i + 1] end
    end
    if is_mine and offset ~= args[2] then gone[#gone + 1] = entry[1] end
  end
  if #gone > 0 then
    redis.call('XDEL', keys[1], unpack(gone))
    redis.call('XADD', keys[1], '*', 'j', args[1], 'f', '0', 'o', args[2], 'b', '')
  end
  return {WORDS.applied, #gone}
end
register('erase_live', erase_live, {'allow-oom'})
