-- Shared by the verbs of deliveries; not a verb. What planning leaves out: what a strict order has had before, and progress
-- that newer progress, or the end of its job, has overtaken.
local KEEP_SUPERSEDED_S = 3600

-- The progress that waits is not wanted any more, unless it is on its way. What was tried stays to be seen.
local function supersede(at, name, job, id, now)
  local h = job_fields(at .. 'delivery:' .. id, 'state', 'try', 'tenant', 'n')
  if (h[1] ~= 'waiting' and h[1] ~= 'blocked') or redis.call('ZSCORE', at .. 'flight:' .. name, id) then return end
  if h[2] ~= '0' then
    redis.call('HSET', at .. 'delivery:' .. id, 'state', 'superseded', 'ended', as_ms(now))
    return close(at, name, id, now, KEEP_SUPERSEDED_S)
  end
  erase(at, name, h[3], id)
  if h[4] then advance(at, name, job, id, now) end
end

-- When a delivery may be sent; nil when it is no news.
local function due_of(at, d, now)
  local due = d.due > 0 and d.due or now
  if not (d.strict or d.every or d.last) then return due end
  local order = at .. 'order:' .. d.e .. ':' .. d.j
  local h = redis.call('HMGET', order, 'mark', 'latest', 'seq', 'sent')
  local told = tonumber(h[3] or 0)
  if (d.strict and d.n <= tonumber(h[1] or 0)) or (d.every and d.n <= told) then return nil end
  if d.strict then redis.call('HSET', order, 'mark', d.n) end
  if (d.every or d.last) and d.n > told then
    if h[2] then supersede(at, d.e, d.j, h[2], now) end
    redis.call('HSET', order, 'seq', d.n, 'latest', d.every and d.id or '')
  end
  redis.call('EXPIRE', order, KEEP_ORDER_S)
  return d.every and math.max(due, tonumber(h[4] or 0) + d.every) or due
end
