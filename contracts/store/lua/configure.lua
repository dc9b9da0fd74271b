-- configure: one configuration event is in the log of {_sys}, decided on its newest state
-- KEYS  1 log stream   2 meta hash   3.. secrets (strings) named by the write
-- ARGV  1 now_ms or 0   2 write id   3 expected last position   4 write (prelude)   5.. one value for each secret, '' removes it
-- Reply APPLIED position | CONFLICT last-position | GONE no-log
-- Events as given
-- Guard an entry the caller has not folded; a write id seen before is answered again
local function configure(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return {WORDS.gone} end
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  local last = redis.call('XREVRANGE', keys[1], '+', '-', 'COUNT', 1)[1]
  last = last and last[1] or '0-0'
  if last ~= args[3] then return {WORDS.conflict, last} end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[4]))
  for i = 3, #keys do
    if args[i + 2] == '' then redis.call('DEL', keys[i]) else redis.call('SET', keys[i], args[i + 2]) end
  end
  keep_op(keys[2], args[2], p)
  return {WORDS.applied, p}
end
register('configure', configure, {})
