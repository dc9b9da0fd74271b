-- note: a fact that concerns no job and no worker is in the log of the pool, once
-- KEYS  1 log stream   2 meta hash
-- ARGV  1 now_ms or 0   2 write id   3 write (prelude)   4, 5 optional: a field of meta that is to say '<ms> <this>'
-- Reply APPLIED position | GONE no-log
-- Events as given
-- Guard a write id seen before is answered again
local function note(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return {WORDS.gone} end
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[3]))
  keep_op(keys[2], args[2], p)
  if args[4] then redis.call('HSET', keys[2], args[4], string.match(p, '^%d+') .. ' ' .. args[5]) end
  return {WORDS.applied, p}
end
register('note', note, {})
