-- plan: the deliveries of a batch of events are stored and due, and the batch is acknowledged
-- KEYS  1 log stream   2 due zset   3 meta hash   4 poison stream   5.. one delivery hash each
-- ARGV  1 now_ms or 0   2 group   3 deliveries: JSON list of {id, due_ms or 0 for now, {field, value, ...}} in the order of KEYS
--       4 poison: JSON list of {position, reason}   5.. positions to acknowledge
-- Reply APPLIED planned-count
-- Events none (the attempt is the event)
-- Guard a delivery that exists is left alone: planning twice makes one
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

local function plan(keys, args)
  local now, planned = now_ms(args[1]), 0
  for i, delivery in ipairs(cjson.decode(args[3])) do
    local key = keys[4 + i]
    if redis.call('EXISTS', key) == 0 then
      local due = delivery[2] > 0 and delivery[2] or now
      redis.call('HSET', key, 'try', 0, 'state', 'waiting', 'planned', string.format('%.0f', now), unpack(delivery[3]))
      redis.call('ZADD', keys[2], string.format('%.0f', due), delivery[1])
      planned = planned + 1
    end
  end
  for _, entry in ipairs(cjson.decode(args[4])) do
    redis.call('XADD', keys[4], 'MAXLEN', '~', POISON_KEPT, '*', 'group', args[2], 'at', entry[1], 'reason', entry[2])
  end
  for i = 5, #args do redis.call('XACK', keys[1], args[2], args[i]) end
  local cursor = done_up_to(keys[1], args[2])
  if cursor then redis.call('HSET', keys[3], 'cursor:' .. args[2], cursor) end
  return {WORDS.applied, planned}
end
register('plan', plan, {'allow-oom'})
