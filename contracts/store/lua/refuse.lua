-- refuse: an id that was not admitted can never be admitted any more
-- KEYS  1 job hash   2 admitted string
-- ARGV  1 time to live s
-- Reply APPLIED | CONFLICT (the job exists: it was admitted after all)
-- Events none
-- Guard an admitted job
local function refuse(keys, args)
  if redis.call('EXISTS', keys[1]) == 1 then return {WORDS.conflict} end
  redis.call('SET', keys[2], 'refused', 'EX', args[1], 'NX')
  return {WORDS.applied}
end
register('refuse', refuse, {'allow-oom'})
