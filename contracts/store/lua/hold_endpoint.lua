-- hold_endpoint: what waits for an endpoint that is off, or gone, is not sent; what is on its way ends by itself
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 endpoint   3 most   4 state of these deliveries   5 seconds to keep them   6 '1' if they may be revived
-- Reply APPLIED count in-flight
-- Events none
-- Guard none
local function hold_endpoint(keys, args)
  local at, now, name, count = keys[1], now_ms(args[1]), args[2], 0
  redis.call('ZREMRANGEBYSCORE', at .. 'flight:' .. name, '-inf', as_ms(now))
  local flying = redis.call('ZCARD', at .. 'flight:' .. name)
  for _, id in ipairs(redis.call('ZRANGE', at .. 'due:' .. name, 0, args[3] + flying - 1)) do
    if not redis.call('ZSCORE', at .. 'flight:' .. name, id) then
      if redis.call('EXISTS', at .. 'delivery:' .. id) == 1 then
        redis.call('HSET', at .. 'delivery:' .. id, 'state', args[4], 'ended', as_ms(now))
      end
      close(at, name, id, now, tonumber(args[5]), args[6] == '1', args[6] == '1')
      count = count + 1
    end
  end
  rescore(at, name, now)
  return {WORDS.applied, count, flying}
end
register('hold_endpoint', hold_endpoint, {'allow-oom'})
