-- keep_task: how far a task is; its claim lasts on, or ends with it
-- KEYS  1 hash of tasks   2 leases hash
-- ARGV  1 now_ms or 0   2 who claimed   3 lease ms   4 id   5 what is asked and how far it is (JSON)   6 '1' when it is done
-- Reply APPLIED | FENCED another works on it | GONE
-- Events none
-- Guard the claim; a task that was removed stays away
local function keep_task(keys, args)
  if string.match(redis.call('HGET', keys[2], args[4]) or '', '^(%S+) ') ~= args[2] then return {WORDS.fenced} end
  if redis.call('HEXISTS', keys[1], args[4]) == 0 then
    redis.call('HDEL', keys[2], args[4])
    return {WORDS.gone}
  end
  redis.call('HSET', keys[1], args[4], args[5])
  if args[6] == '1' then
    redis.call('HDEL', keys[2], args[4])
  else
    redis.call('HSET', keys[2], args[4], args[2] .. ' ' .. as_ms(now_ms(args[1]) + tonumber(args[3])))
  end
  return {WORDS.applied}
end
register('keep_task', keep_task, {'allow-oom'})
