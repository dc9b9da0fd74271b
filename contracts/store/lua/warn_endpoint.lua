-- warn_endpoint: an endpoint that keeps failing is warned about, once at each mark
-- KEYS  1 log stream   2 prefix of deliveries
-- ARGV  1 now_ms or 0   2 endpoint   3 mark in percent   4 failing since ms, as it was told   5 write (prelude)
-- Reply APPLIED position | CONFLICT: it was warned before, or has succeeded since
-- Events as given
-- Guard the mark and the row of failures it belongs to
local function warn_endpoint(keys, args)
  local key = keys[2] .. 'endpoint:' .. args[2]
  local h = redis.call('HMGET', key, 'warned', 'since')
  if h[2] ~= args[4] or tonumber(h[1] or 0) >= tonumber(args[3]) then return {WORDS.conflict} end
  redis.call('HSET', key, 'warned', args[3])
  return {WORDS.applied, append(keys, keys[1], id_for(args[1]), cjson.decode(args[5])) or ''}
end
register('warn_endpoint', warn_endpoint, {'allow-oom'})
