-- plan: the deliveries of a batch of events are stored and due, and the batch is acknowledged
-- KEYS  1 log stream   2 due zset   3 meta hash   4.. one delivery hash each
-- ARGV  1 now_ms or 0   2 group   3 deliveries: JSON list of {id, due_ms or 0 for now, {field, value, ...}} in the order of KEYS
--       4 cursor: the group's last delivered position   5.. positions to acknowledge
-- Reply APPLIED planned-count
-- Events none (the attempt is the event)
-- Guard a delivery that exists is left alone: planning twice makes one
local function plan(keys, args)
  local now, planned = now_ms(args[1]), 0
  for i, delivery in ipairs(cjson.decode(args[3])) do
    local key = keys[3 + i]
    if redis.call('EXISTS', key) == 0 then
      local due = delivery[2] > 0 and delivery[2] or now
      redis.call('HSET', key, 'try', 0, 'state', 'waiting', 'planned', string.format('%.0f', now), unpack(delivery[3]))
      redis.call('ZADD', keys[2], string.format('%.0f', due), delivery[1])
      planned = planned + 1
    end
  end
  redis.call('HSET', keys[3], 'cursor:' .. args[2], args[4])
  for i = 5, #args do redis.call('XACK', keys[1], args[2], args[i]) end
  return {WORDS.applied, planned}
end
register('plan', plan, {'allow-oom'})
