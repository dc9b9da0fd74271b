-- Shared by the verbs of deliveries; not a verb. `at` is the prefix of the pool's keys: which deliveries a call touches is
-- known only inside it, so their keys are made here, in the slot of the log that is passed beside it.
--   due                     zset: endpoint -> when it next has something to do
--   due:<endpoint>          zset: delivery -> due ms; of a claimed one the end of its claim
--   flight:<endpoint>       zset: claimed delivery -> end of its claim
--   endpoint:<endpoint>     hash: tenant, most in flight, row of failures since `since`, ok (last success), open (its circuit),
--                           gate and pace (nothing before), tat (of the rate), turn (which end of the queue is next), warned
--   stats:<endpoint>        hash, TTL: '<hour> <bucket>' -> attempts
--   dead:<endpoint>         zset: delivery -> when it was given up or held
--   settled                 zset: delivery -> when it is to be forgotten
--   deliveries:<tenant>     zset, all scores 0: every delivery there is, by id
--   chain:<endpoint>:<job>  zset: what is in strict order, by sequence; only the first is due
--   order:<endpoint>:<job>  hash, TTL: mark (highest sequence chained), latest (waiting progress), seq (newest told), sent (ms)
--   outcomes                hash: outcome -> attempts of the pool, ever
local KEEP_ORDER_S, KEEP_CHAIN_S, KEEP_ENDPOINT_S = 7 * 86400, 35 * 86400, 35 * 86400

local function as_ms(n) return string.format('%.0f', n) end

-- When an endpoint next has something to do. One that could be served and was not keeps its place in the line.
local function rescore(at, name, now, served)
  local first = redis.call('ZRANGE', at .. 'due:' .. name, 0, 0, 'WITHSCORES')[2]
  if not first then return redis.call('ZREM', at .. 'due', name) end
  local h = redis.call('HMGET', at .. 'endpoint:' .. name, 'most', 'open', 'gate', 'pace')
  local due, flying = tonumber(first), redis.call('ZCARD', at .. 'flight:' .. name)
  if flying > 0 and (h[2] or flying >= tonumber(h[1] or flying + 1)) then
    due = tonumber(redis.call('ZRANGE', at .. 'flight:' .. name, 0, 0, 'WITHSCORES')[2])
  end
  due = math.max(due, tonumber(h[3] or 0), tonumber(h[4] or 0))
  if due <= now then
    local place = tonumber(redis.call('ZSCORE', at .. 'due', name) or now)
    due = (served or place > now) and now or place
  end
  redis.call('ZADD', at .. 'due', as_ms(due), name)
end

-- Queue a delivery: in strict order only the first of its job is due, the others are blocked.
local function queue(at, name, job, id, n, due)
  if n then
    local chain = at .. 'chain:' .. name .. ':' .. job
    redis.call('ZADD', chain, n, id)
    redis.call('EXPIRE', chain, KEEP_CHAIN_S)
    if redis.call('ZRANGE', chain, 0, 0)[1] ~= id then
      return redis.call('HSET', at .. 'delivery:' .. id, 'state', 'blocked', 'after', as_ms(due))
    end
  end
  redis.call('HSET', at .. 'delivery:' .. id, 'state', 'waiting')
  redis.call('ZADD', at .. 'due:' .. name, as_ms(due), id)
end

-- A delivery is out of the strict order of its job: the next one is due.
local function advance(at, name, job, id, now)
  local chain = at .. 'chain:' .. name .. ':' .. job
  redis.call('ZREM', chain, id)
  for _ = 1, 1000 do
    local head = redis.call('ZRANGE', chain, 0, 0)[1]
    if not head then return end
    local h = job_fields(at .. 'delivery:' .. head, 'state', 'after')
    if h[1] == 'blocked' then
      redis.call('HSET', at .. 'delivery:' .. head, 'state', 'waiting')
      redis.call('ZADD', at .. 'due:' .. name, as_ms(math.max(now, tonumber(h[2] or 0))), head)
    end
    if h[1] then return redis.call('EXPIRE', chain, KEEP_CHAIN_S) end
    redis.call('ZREM', chain, head)  -- its hash is gone, by a foreign hand
  end
end

-- Nothing more is tried; kept for so long. `dead`: it may be revived, and stays in its place of a strict order if `held`.
local function close(at, name, id, now, keep_s, dead, held)
  redis.call('ZREM', at .. 'due:' .. name, id)
  redis.call('ZADD', at .. 'settled', as_ms(now + keep_s * 1000), id)
  if dead then redis.call('ZADD', at .. 'dead:' .. name, as_ms(now), id) end
  local h = redis.call('HMGET', at .. 'delivery:' .. id, 'n', 'job')
  if h[1] and not held then advance(at, name, h[2], id, now) end
end

-- Whether a job is erased of which a delivery has something to say.
local function is_erased(at, job, bare)
  return not bare and job and job ~= '' and redis.call('HEXISTS', at .. 'job:' .. job, 'er') == 1
end

-- The write that says that a delivery was given up; h: job, event type, tries.
local function exhausted_event(id, h, outcome, endpoint_id)
  local data = {deliveryId = id, jobId = h[1] or '', eventType = h[2] or '', attempts = tonumber(h[3]) or 0, outcome = outcome}
  if endpoint_id ~= '' then data.endpointId = endpoint_id end
  return {j = id, ev = {{'webhook.exhausted', cjson.encode(data), 0, {}}}}
end

local function erase(at, name, tenant, id)
  redis.call('DEL', at .. 'delivery:' .. id)
  for _, zset in ipairs({'due:' .. name, 'flight:' .. name, 'dead:' .. name, 'deliveries:' .. tenant, 'settled'}) do
    redis.call('ZREM', at .. zset, id)
  end
end

-- An endpoint has deliveries: whose it is, and what was added is seen.
local function know(at, name, tenant, now)
  redis.call('HSET', at .. 'endpoint:' .. name, 'tenant', tenant)
  redis.call('EXPIRE', at .. 'endpoint:' .. name, KEEP_ENDPOINT_S)
  rescore(at, name, now)
end
