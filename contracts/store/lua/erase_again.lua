-- erase_again: something of erased jobs may have come back: each waits once more to be removed
-- KEYS  1 hash of erasures
-- ARGV  1.. job, what is left to remove, and so on
-- Reply APPLIED, then the jobs that waited already: whoever removes them may have looked there before
-- Events none
-- Guard none
local function erase_again(keys, args)
  local reply = {WORDS.applied}
  for i = 1, #args, 2 do
    if redis.call('HSETNX', keys[1], args[i], args[i + 1]) == 0 then reply[#reply + 1] = args[i] end
  end
  return reply
end
register('erase_again', erase_again, {'allow-oom'})
