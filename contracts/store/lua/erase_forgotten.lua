-- erase_forgotten: a forgotten job is to be erased where it still lies: what is left to remove is written down
-- KEYS  1 log stream   2 hash of erasures
-- ARGV  1 now_ms or 0   2 job   3 what is left to remove   4 write (prelude): archive.erased
-- Reply APPLIED position, '' where it waits already | GONE no-log
-- Events as given
-- Guard one that waits to be removed is not said again
local function erase_forgotten(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return {WORDS.gone} end
  if redis.call('HSETNX', keys[2], args[2], args[3]) == 0 then return {WORDS.applied, ''} end
  return {WORDS.applied, append(keys, keys[1], id_for(args[1]), cjson.decode(args[4]))}
end
register('erase_forgotten', erase_forgotten, {'allow-oom'})
