-- ask_task: something is to be done that takes longer than a request: a backfill, a redrive
-- KEYS  1 hash of such tasks
-- ARGV  1 id   2 what is asked (JSON)   3 most at once
-- Reply APPLIED | CONFLICT too many
-- Events none (one that says what is asked comes before)
-- Guard one that is known stays as far as it is
local function ask_task(keys, args)
  if redis.call('HEXISTS', keys[1], args[1]) == 1 then return {WORDS.applied} end
  if redis.call('HLEN', keys[1]) >= tonumber(args[3]) then return {WORDS.conflict} end
  redis.call('HSET', keys[1], args[1], args[2])
  return {WORDS.applied}
end
register('ask_task', ask_task, {})
