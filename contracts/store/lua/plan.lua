-- plan: the deliveries of a batch of events are stored and due, and the batch is acknowledged
-- KEYS  1 log stream   2 prefix of deliveries   3 meta hash   4 poison stream
-- ARGV  1 now_ms or 0   2 group or ''   3 deliveries: JSON list of {id, due ms or 0, f {field, value, ...}, e endpoint, t tenant,
--       j job, n sequence, strict, every ms, last, bare}, by rising sequence   4 poison: JSON list of {position, reason}
--       5.. positions to acknowledge
-- Reply APPLIED planned-count
-- Events none (the attempt is the event)
-- Guard a delivery that exists is left alone: planning twice makes one; of an erased job none, unless it is bare
local POISON_KEPT = 10000

-- The position up to which the group is done with everything, whoever read it; nil when there is no group.
-- A group that is lost is made again there: any further on, what another consumer held would be skipped.
local function done_up_to(log, group)
  local pending = redis.pcall('XPENDING', log, group)
  if pending.err then return nil end
  if pending[1] > 0 then
    local ms, seq = string.match(pending[2], '^(%d+)-(%d+)$')
    if seq ~= '0' then return ms .. '-' .. string.format('%.0f', tonumber(seq) - 1) end
    return string.format('%.0f', tonumber(ms) - 1) .. '-18446744073709551615'
  end
  for _, fields in ipairs(redis.call('XINFO', 'GROUPS', log)) do
    local about = {}
    for i = 1, #fields, 2 do about[fields[i]] = fields[i + 1] end
    if about.name == group then return about['last-delivered-id'] end
  end
  return nil
end

local function store_new(at, d, now)
  local key = at .. 'delivery:' .. d.id
  if is_erased(at, d.j, d.bare) then return false end
  local due = redis.call('EXISTS', key) == 0 and due_of(at, d, now)
  if not due then return false end
  redis.call('HSET', key, 'try', 0, 'planned', as_ms(now), 'endpoint', d.e, 'tenant', d.t, 'job', d.j, unpack(d.f))
  if d.strict then redis.call('HSET', key, 'n', d.n) end
  if d.bare then redis.call('HSET', key, 'bare', '1') end
  if d.every then redis.call('HSET', key, 'every', d.every) end
  redis.call('ZADD', at .. 'deliveries:' .. d.t, 0, d.id)
  queue(at, d.e, d.j, d.id, d.strict and d.n, due)
  return true
end

local function plan(keys, args)
  local at, now, planned, touched = keys[2], now_ms(args[1]), 0, {}
  for _, d in ipairs(cjson.decode(args[3])) do
    if store_new(at, d, now) then planned, touched[d.e] = planned + 1, d.t end
  end
  for name, tenant in pairs(touched) do know(at, name, tenant, now) end
  for _, entry in ipairs(cjson.decode(args[4])) do
    redis.call('XADD', keys[4], 'MAXLEN', '~', POISON_KEPT, '*', 'group', args[2], 'at', entry[1], 'reason', entry[2])
  end
  for i = 5, #args do redis.call('XACK', keys[1], args[2], args[i]) end
  local cursor = args[2] ~= '' and done_up_to(keys[1], args[2])
  if cursor then redis.call('HSET', keys[3], 'cursor:' .. args[2], cursor) end
  return {WORDS.applied, planned}
end
register('plan', plan, {'allow-oom'})
