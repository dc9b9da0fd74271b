-- drop_mirror: the log is not kept for the mirror any more; one that is switched on again begins with the oldest entry
-- KEYS  1 mirror hash   2 log stream   3 meta hash
-- ARGV  1 now_ms or 0   2 write (prelude)
-- Reply APPLIED position | REFUSED (a mirror runs) | GONE (there is no group)
-- Events as given
-- Guard a lease that has not run out
local function drop_mirror(keys, args)
  if redis.call('EXISTS', keys[2]) == 0 then return {WORDS.gone} end
  local now, group = now_ms(args[1]), group_of(keys[2], 'mirror')
  if tonumber(redis.call('HGET', keys[1], 'until') or 0) > now then return {WORDS.refused} end
  if not group and redis.call('EXISTS', keys[1]) == 0 then return {WORDS.gone} end
  if group then redis.call('XGROUP', 'DESTROY', keys[2], 'mirror') end
  redis.call('HDEL', keys[3], 'cursor:mirror')
  redis.call('DEL', keys[1])
  return {WORDS.applied, (append(keys, keys[2], id_for(args[1]), cjson.decode(args[2])))}
end
register('drop_mirror', drop_mirror, {'allow-oom'})
