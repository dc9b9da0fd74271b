-- redeliver: a delivery is sent again: revived where it was given up, made anew where it is done, at once where it waits
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 id   3 id without its generation   4 its generation   5 write id   6.. fields that a new one takes over
-- Reply APPLIED id | REFUSED: it waits for another in strict order | GONE
-- Events none
-- Guard one whose job is erased has nothing to send; a write id seen before is answered again; one on its way stays so; a new generation has the same bytes and no order
local function again(at, args, name, now)
  local generation, kept = tonumber(args[4]), {}
  repeat generation = generation + 1 until redis.call('EXISTS', at .. 'delivery:' .. args[3] .. generation) == 0
  local id = args[3] .. generation
  local h = redis.call('HMGET', at .. 'delivery:' .. args[2], unpack(args, 6))
  for i, value in ipairs(h) do
    if value then kept[#kept + 1], kept[#kept + 2] = args[5 + i], value end
  end
  redis.call('HSET', at .. 'delivery:' .. id, 'try', 0, 'planned', as_ms(now), unpack(kept))
  return id
end

local function redeliver(keys, args)
  local at, now, id = keys[1], now_ms(args[1]), args[2]
  local key, asked = at .. 'delivery:' .. id, 'w:' .. args[5]
  local h = job_fields(key, 'state', 'endpoint', 'tenant', 'job', asked)
  if not h[1] then return {WORDS.gone} end
  if h[5] then return {WORDS.applied, h[5]} end
  if h[1] == 'erased' then return {WORDS.gone} end
  if h[1] == 'blocked' then return {WORDS.refused} end
  local name = h[2]
  if redis.call('ZSCORE', at .. 'dead:' .. name, id) then
    revive_one(at, name, id, now)
  elseif h[1] ~= 'waiting' then
    id = again(at, args, name, now)
    redis.call('ZADD', at .. 'deliveries:' .. h[3], 0, id)
    queue(at, name, h[4], id, nil, now)
  elseif not redis.call('ZSCORE', at .. 'flight:' .. name, id) then
    redis.call('ZADD', at .. 'due:' .. name, 'LT', as_ms(now), id)
  end
  redis.call('HSET', key, asked, id)
  know(at, name, h[3], now)
  return {WORDS.applied, id}
end
register('redeliver', redeliver, {'allow-oom'})
