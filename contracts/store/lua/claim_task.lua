-- claim_task: a task that nobody works on and that waits for nothing is ours for a time, the oldest first; those long
--       done are removed
-- KEYS  1 hash of tasks   2 leases hash
-- ARGV  1 now_ms or 0   2 who claims   3 lease ms   4 how long done ones are kept, ms
-- Reply what is asked (JSON) | ''
-- Events none
-- Guard another's lease that has not run out
local function claim_task(keys, args)
  if redis.call('EXISTS', keys[1]) == 0 then return '' end
  local now, found = now_ms(args[1]), nil
  local all = redis.call('HGETALL', keys[1])
  for i = 1, #all, 2 do
    local id, text = all[i], all[i + 1]
    local readable, asked = pcall(cjson.decode, text)
    readable = readable and type(asked) == 'table' and tonumber(asked.done_ms) and tonumber(asked.asked_ms)
    if not readable or (asked.done_ms > 0 and asked.done_ms + tonumber(args[4]) <= now) then
      redis.call('HDEL', keys[1], id)
    elseif asked.done_ms == 0 and (tonumber(asked.not_before_ms) or 0) <= now and (not found or asked.asked_ms < found.asked_ms) then
      local holder, ends = string.match(redis.call('HGET', keys[2], id) or '', '^(%S+) (%d+)$')
      if not holder or holder == args[2] or tonumber(ends) <= now then
        found = {id = id, text = text, asked_ms = asked.asked_ms}
      end
    end
  end
  if not found then return '' end
  redis.call('HSET', keys[2], found.id, args[2] .. ' ' .. as_ms(now + tonumber(args[3])))
  return found.text
end
register('claim_task', claim_task, {})
