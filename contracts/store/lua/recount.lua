-- recount: one field of a hash of the live state is what the log says: a counter, or who holds a dedup key
-- KEYS  1 log stream   2 meta hash   3 the hash
-- ARGV  1 now_ms or 0   2 write id   3 epoch of the log that was folded   4 field   5 what it was then, '' for nothing
--       6 what it is to be, '' for nothing   7 write (prelude): projection.rebuilt
-- Reply APPLIED position | CONFLICT
-- Events as given
-- Guard the epoch; the value as it was when it was compared; a write id seen before is answered again
local function recount(keys, args)
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  if redis.call('HGET', keys[2], 'epoch') ~= args[3] then return {WORDS.conflict} end
  if redis.call('TYPE', keys[3]).ok ~= 'hash' then redis.call('DEL', keys[3]) end
  local there = redis.call('HGET', keys[3], args[4]) or ''
  if there ~= args[5] then return {WORDS.conflict} end
  if args[6] == '' then redis.call('HDEL', keys[3], args[4]) else redis.call('HSET', keys[3], args[4], args[6]) end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[7]))
  keep_op(keys[2], args[2], p)
  return {WORDS.applied, p}
end
register('recount', recount, {'allow-oom'})
