-- expire_deliveries: what has been due for longer than all its tries would have taken is given up; its circuit never closed
-- KEYS  1 log stream   2 prefix of deliveries
-- ARGV  1 now_ms or 0   2 endpoint   3 due before ms   4 most   5 seconds to keep it   6 id of the endpoint, or ''
-- Reply APPLIED count
-- Events webhook.exhausted for each
-- Guard what is in flight is somebody's
local function expire_deliveries(keys, args)
  local at, now, name, count = keys[2], now_ms(args[1]), args[2], 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', at .. 'due:' .. name, '-inf', args[3], 'LIMIT', 0, args[4])) do
    if not redis.call('ZSCORE', at .. 'flight:' .. name, id) then
      local h = job_fields(at .. 'delivery:' .. id, 'job', 'event', 'try')
      append(keys, keys[1], id_for(args[1]), exhausted_event(id, h, 'circuit_open', args[6]))
      redis.call('HSET', at .. 'delivery:' .. id, 'state', 'exhausted', 'outcome', 'circuit_open', 'ended', as_ms(now))
      close(at, name, id, now, tonumber(args[5]), true)
      count = count + 1
    end
  end
  rescore(at, name, now)
  return {WORDS.applied, count}
end
register('expire_deliveries', expire_deliveries, {'allow-oom'})
