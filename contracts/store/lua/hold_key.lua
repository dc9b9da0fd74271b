-- hold_key: a dedup key is held by whom the log says, or by nobody
-- KEYS  1 log stream   2 meta hash   3 hash of the tenant's dedup keys
-- ARGV  1 now_ms or 0   2 write id   3 epoch of the log that was folded   4 dedup key (digest)   5 who held it then, '' for nobody
--       6 who is to hold it, '' for nobody   7 write (prelude): projection.rebuilt
-- Reply APPLIED position | CONFLICT
-- Events as given
-- Guard the epoch; who held it when it was compared; a write id seen before is answered again
local function hold_key(keys, args)
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  if redis.call('HGET', keys[2], 'epoch') ~= args[3] then return {WORDS.conflict} end
  if redis.call('TYPE', keys[3]).ok ~= 'hash' then redis.call('DEL', keys[3]) end
  if (redis.call('HGET', keys[3], args[4]) or '') ~= args[5] then return {WORDS.conflict} end
  if args[6] == '' then redis.call('HDEL', keys[3], args[4]) else redis.call('HSET', keys[3], args[4], args[6]) end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[7]))
  keep_op(keys[2], args[2], p)
  return {WORDS.applied, p}
end
register('hold_key', hold_key, {'allow-oom'})
