-- endpoint: how an endpoint does: its circuit, its attempts by hour, what waits
-- KEYS  1 prefix of deliveries
-- ARGV  1 endpoint
-- Reply fields of its hash, fields of its stats, waiting, in flight, dead, oldest due ms or nothing
-- Events none
-- Guard none
local function endpoint(keys, args)
  local at, name = keys[1], args[1]
  return {
    redis.call('HGETALL', at .. 'endpoint:' .. name), redis.call('HGETALL', at .. 'stats:' .. name),
    redis.call('ZCARD', at .. 'due:' .. name), redis.call('ZCARD', at .. 'flight:' .. name),
    redis.call('ZCARD', at .. 'dead:' .. name), redis.call('ZRANGE', at .. 'due:' .. name, 0, 0, 'WITHSCORES')[2] or false,
  }
end
register('endpoint', endpoint, {'no-writes'})
