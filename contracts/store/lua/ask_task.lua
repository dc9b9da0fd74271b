-- ask_task: something is to be done that takes longer than a request: a backfill, a redrive
-- KEYS  1 hash of such tasks
-- ARGV  1 id   2 what is asked (JSON)   3 most under way   4 most in all
-- Reply APPLIED | CONFLICT too many are under way
-- Events none (one that says what is asked comes before)
-- Guard one that is known stays as far as it is; of those that are over, the one that is so for longest makes room
local function make_room(keys, args)
  local under_way, count, first = 0, 0, nil
  local all = redis.call('HGETALL', keys[1])
  for i = 1, #all, 2 do
    local readable, asked = pcall(cjson.decode, all[i + 1])
    local done_ms = readable and type(asked) == 'table' and tonumber(asked.done_ms) or 0
    count = count + 1
    if done_ms == 0 then under_way = under_way + 1
    elseif not first or done_ms < first.done_ms then first = {id = all[i], done_ms = done_ms} end
  end
  if under_way >= tonumber(args[3]) then return false end
  if count >= tonumber(args[4]) then redis.call('HDEL', keys[1], first.id) end
  return true
end

local function ask_task(keys, args)
  if redis.call('HEXISTS', keys[1], args[1]) == 1 then return {WORDS.applied} end
  if redis.call('HLEN', keys[1]) >= tonumber(args[3]) and not make_room(keys, args) then return {WORDS.conflict} end
  redis.call('HSET', keys[1], args[1], args[2])
  return {WORDS.applied}
end
register('ask_task', ask_task, {})
