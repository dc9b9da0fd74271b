-- leave_file: a job does not use a file any more that was sent
-- KEYS  1 set of uses
-- ARGV  1 job and its pool
-- Reply the others that used it
-- Events none
-- Guard none
local function leave_file(keys, args)
  redis.call('SREM', keys[1], args[1])
  return redis.call('SMEMBERS', keys[1])
end
register('leave_file', leave_file, {'allow-oom'})
