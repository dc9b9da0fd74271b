-- forget_deliveries: what was kept for its time is gone
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 most
-- Reply APPLIED count
-- Events none
-- Guard none; what waits is never forgotten
local function forget_deliveries(keys, args)
  local at, now = keys[1], now_ms(args[1])
  local ids = redis.call('ZRANGEBYSCORE', at .. 'settled', '-inf', as_ms(now), 'LIMIT', 0, args[2])
  for _, id in ipairs(ids) do
    local h = job_fields(at .. 'delivery:' .. id, 'endpoint', 'tenant', 'job', 'n')
    erase(at, h[1] or '', h[2] or '', id)
    if h[4] then
      advance(at, h[1], h[3], id, now)  -- held in its place until now
      rescore(at, h[1], now)
    end
  end
  return {WORDS.applied, #ids}
end
register('forget_deliveries', forget_deliveries, {'allow-oom'})
