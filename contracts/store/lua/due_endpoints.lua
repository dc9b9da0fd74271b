-- due_endpoints: which endpoints have something to do now, those that wait the longest first
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 most   3 how many to skip
-- Reply now_ms, next-due-ms or '', then endpoint, tenant, ...
-- Events none
-- Guard none
local function due_endpoints(keys, args)
  local at, now = keys[1], now_ms(args[1])
  local next_due = redis.call('ZRANGEBYSCORE', at .. 'due', '(' .. as_ms(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local out = {as_ms(now), next_due or ''}
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', at .. 'due', '-inf', as_ms(now), 'LIMIT', args[3], args[2])) do
    out[#out + 1], out[#out + 2] = name, redis.call('HGET', at .. 'endpoint:' .. name, 'tenant') or ''
  end
  return out
end
register('due_endpoints', due_endpoints, {'no-writes'})
