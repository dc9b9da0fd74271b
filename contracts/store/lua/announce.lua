-- announce: something about a worker is in the log: changed, draining, drained, asked of it by an operator
-- KEYS  1 log stream   2 worker hash   3 work stream   4 workers set   5.. as the write names them
-- ARGV  1 now_ms or 0   2 write id   3 write (prelude)   4 new state or '' (gone: the worker leaves for good)
-- Reply APPLIED position | GONE
-- Events as given
-- Guard a worker that is gone; a write id seen before is answered again
local function announce(keys, args)
  if redis.call('EXISTS', keys[2]) == 0 then return {WORDS.gone} end
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  local w = cjson.decode(args[3])
  local p = commit(keys, keys[1], '', id_for(args[1]), w)
  if args[4] == 'gone' then
    redis.call('DEL', keys[2], keys[3])
    redis.call('SREM', keys[4], w.j)
  else
    if args[4] ~= '' then redis.call('HSET', keys[2], 'state', args[4]) end
    keep_op(keys[2], args[2], p)
  end
  return {WORDS.applied, p}
end
register('announce', announce, {'allow-oom'})
