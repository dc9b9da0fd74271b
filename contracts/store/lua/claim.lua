-- claim: due deliveries of endpoints are this sender's until the claim runs out; nothing is removed
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 claim ms   3 asks: JSON list of {endpoint, room, most in flight, ms between two or 0, how many at once}   4.. fields
-- Reply now_ms, then {endpoint, id, value of each field, ...}
-- Events none
-- Guard no more in flight than `most` over all senders, one while the circuit is open, none before the gate or above the rate

-- How many of an endpoint may go now. Its rate is kept by GCRA: `tat` is when it has had its rest for all that was sent.
local function room_of(at, ask, h, now)
  local flight = at .. 'flight:' .. ask[1]
  redis.call('ZREMRANGEBYSCORE', flight, '-inf', as_ms(now))  -- their claims ran out: they are due again
  local flying = tonumber(h[1] or 0) > now and ask[3] or redis.call('ZCARD', flight)
  local room = math.max(0, math.min(ask[2], (h[2] and 1 or ask[3]) - flying))
  if ask[4] <= 0 then return room end
  return math.max(0, math.min(room, ask[5] - math.ceil((math.max(tonumber(h[3] or 0), now) - now) / ask[4])))
end

-- Half from each end of what is due: neither the oldest nor what comes fresh waits for all of a backlog.
local function take(at, ask, room, now)
  local due = at .. 'due:' .. ask[1]
  local ids = room == 0 and {} or redis.call('ZRANGEBYSCORE', due, '-inf', as_ms(now), 'LIMIT', 0, room + 1)
  if #ids <= room then return ids end
  local fresh = math.floor((room + redis.call('HINCRBY', at .. 'endpoint:' .. ask[1], 'turn', 1) % 2) / 2)
  local newest = redis.call('ZREVRANGEBYSCORE', due, as_ms(now), '-inf', 'LIMIT', 0, fresh)
  for i = 1, room - fresh do newest[#newest + 1] = ids[i] end
  return newest
end

local function claim_one(at, name, id, now, ends, fields)
  local h = job_fields(at .. 'delivery:' .. id, 'state', 'every', 'job', 'bare', unpack(fields))
  if h[1] ~= 'waiting' or is_erased(at, h[3], h[4]) then return redis.call('ZREM', at .. 'due:' .. name, id) and nil end
  redis.call('ZADD', at .. 'due:' .. name, ends, id)
  redis.call('ZADD', at .. 'flight:' .. name, ends, id)
  if h[2] then redis.call('HSET', at .. 'order:' .. name .. ':' .. h[3], 'sent', as_ms(now)) end
  return {name, id, unpack(h, 5, 4 + #fields)}
end

-- What the endpoint keeps of this: how many it takes at once, and when its rate allows the next one.
local function keep_pace(key, ask, h, now, sent)
  if h[4] ~= tostring(ask[3]) then redis.call('HSET', key, 'most', ask[3]) end
  if ask[4] <= 0 then return h[3] and redis.call('HDEL', key, 'tat', 'pace') end
  local tat = math.max(tonumber(h[3] or 0), now) + sent * ask[4]
  redis.call('HSET', key, 'tat', string.format('%.3f', tat), 'pace', as_ms(math.ceil(tat - (ask[5] - 1) * ask[4])))
end

local function claim(keys, args)
  local at, now, fields = keys[1], now_ms(args[1]), {unpack(args, 4)}
  local out, ends = {as_ms(now)}, as_ms(now + args[2])
  for _, ask in ipairs(cjson.decode(args[3])) do
    local key, before = at .. 'endpoint:' .. ask[1], #out
    local h = redis.call('HMGET', key, 'gate', 'open', 'tat', 'most')
    for _, id in ipairs(take(at, ask, room_of(at, ask, h, now), now)) do
      out[#out + 1] = claim_one(at, ask[1], id, now, ends, fields)
    end
    keep_pace(key, ask, h, now, #out - before)
    rescore(at, ask[1], now, #out > before)
  end
  return out
end
register('claim', claim, {'allow-oom'})
