-- use_files: a job is about to be admitted that names files which were sent: they are not removed with another's
-- KEYS  1.. sets of uses, one for each file
-- ARGV  1 job and its pool   2 seconds until the sets go by themselves
-- Reply APPLIED
-- Events none
-- Guard none: one that is not admitted after all is found not to be there
local function use_files(keys, args)
  for _, key in ipairs(keys) do
    redis.call('SADD', key, args[1])
    redis.call('EXPIRE', key, args[2])
  end
  return {WORDS.applied}
end
register('use_files', use_files, {})
