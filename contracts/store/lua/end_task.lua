-- end_task: a task is over before it is done; whoever works on it finds its claim gone
-- KEYS  1 hash of tasks   2 leases hash
-- ARGV  1 id   2 what was asked and how far it is, as the caller saw it (JSON)   3 the same, ended
-- Reply APPLIED | CONFLICT it has moved on | GONE
-- Events none (one that says who ended it comes before)
-- Guard what the caller saw
local function end_task(keys, args)
  local seen = redis.call('HGET', keys[1], args[1])
  if not seen then return {WORDS.gone} end
  if seen ~= args[2] then return {WORDS.conflict} end
  redis.call('HSET', keys[1], args[1], args[3])
  redis.call('HDEL', keys[2], args[1])
  return {WORDS.applied}
end
register('end_task', end_task, {'allow-oom'})
