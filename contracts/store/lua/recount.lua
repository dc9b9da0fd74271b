-- recount: counters of admission are what the log says: so much is added to each, whatever moves them meanwhile
-- KEYS  1 log stream   2 meta hash   3 usage hash
-- ARGV  1 now_ms or 0   2 write id   3 epoch of the log that was folded   4 `recounted` of the meta hash, as it was then, or ''
--       5 JSON list of {counter, what is to be added}   6 write (prelude): projection.rebuilt
-- Reply APPLIED position | CONFLICT
-- Events as given
-- Guard the epoch; another recount since they were compared; a write id seen before is answered again
local function recount(keys, args)
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  local h = redis.call('HMGET', keys[2], 'epoch', 'recounted')
  if h[1] ~= args[3] or (h[2] or '') ~= args[4] then return {WORDS.conflict} end
  if redis.call('TYPE', keys[3]).ok ~= 'hash' then redis.call('DEL', keys[3]) end
  for _, counter in ipairs(cjson.decode(args[5])) do
    local there = redis.call('HGET', keys[3], counter[1])
    if there and not string.find(there, '^-?%d+$') then redis.call('HDEL', keys[3], counter[1]) end
    local left = redis.call('HINCRBY', keys[3], counter[1], string.format('%.0f', counter[2]))
    if left == 0 and begins(counter[1], 'b:') then redis.call('HDEL', keys[3], counter[1]) end
  end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[6]))
  redis.call('HSET', keys[2], 'recounted', p)
  keep_op(keys[2], args[2], p)
  return {WORDS.applied, p}
end
register('recount', recount, {'allow-oom'})
