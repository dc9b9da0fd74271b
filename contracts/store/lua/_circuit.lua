-- Shared by the verbs of deliveries; not a verb. What an attempt says of its endpoint, and what of the pool.
local STATS_KEPT_H = 48

local function count_attempt(at, s, now)
  local key, hour = at .. 'stats:' .. s.e, math.floor(now / 3600000)
  if redis.call('HINCRBY', key, as_ms(hour) .. ' ' .. s.bucket, 1) > 1 then return end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if tonumber(string.match(field, '^%d+')) <= hour - STATS_KEPT_H then redis.call('HDEL', key, field) end
  end
  redis.call('EXPIRE', key, STATS_KEPT_H * 3600)
end

-- The circuit: after `trip` failures in a row nothing goes before the gate, then one at a time, until one succeeds.
-- What was on its way when it opened is no probe, and does not make the wait longer.
local function judge_endpoint(at, s, now)
  local key = at .. 'endpoint:' .. s.e
  local h = redis.call('HMGET', key, 'row', 'gate', 'open')
  local gate = tonumber(h[2] or 0)
  if s.ok == 1 then
    if h[1] then redis.call('HDEL', key, 'row', 'since', 'warned', 'open', h[3] and 'gate' or 'row') end
    return redis.call('HSET', key, 'ok', as_ms(now))
  end
  redis.call('HSETNX', key, 'since', as_ms(now))
  local row = not (h[3] and gate > now) and redis.call('HINCRBY', key, 'row', 1) or 0
  if row >= s.trip then
    redis.call('HSET', key, 'open', '1')
    gate = math.max(gate, now + math.min(s.cap, s.base * 2 ^ math.min(row - s.trip, 20)) * s.spread)
  end
  gate = math.max(gate, now + s.gate)
  if gate > now then redis.call('HSET', key, 'gate', as_ms(gate)) end
end
