-- revive: deliveries that were given up or held are due again, with a new budget of tries and their history
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 endpoint   3 ended since ms   4 ended until ms or +inf   5 most
-- Reply APPLIED count
-- Events none
-- Guard none
local function revive_one(at, name, id, now)
  local h = job_fields(at .. 'delivery:' .. id, 'try', 'job', 'n')
  redis.call('ZREM', at .. 'dead:' .. name, id)
  if not h[1] then return 0 end
  redis.call('ZREM', at .. 'settled', id)
  redis.call('HSET', at .. 'delivery:' .. id, 'base', h[1])
  redis.call('HDEL', at .. 'delivery:' .. id, 'ended')
  queue(at, name, h[2], id, h[3], now)
  return 1
end

local function revive(keys, args)
  local at, now, name, count = keys[1], now_ms(args[1]), args[2], 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', at .. 'dead:' .. name, args[3], args[4], 'LIMIT', 0, args[5])) do
    count = count + revive_one(at, name, id, now)
  end
  rescore(at, name, now)
  return {WORDS.applied, count}
end
register('revive', revive, {'allow-oom'})
