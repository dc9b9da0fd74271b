-- keep_part: one more part of a snapshot is stored; parts that nobody points to go by themselves
-- KEYS  1 parts list
-- ARGV  1 index of this part, from 0   2 part   3 seconds until it goes
-- Reply APPLIED | REFUSED parts-there
-- Events none
-- Guard parts come in order; one that is there is left alone
local function keep_part(keys, args)
  local there = redis.call('LLEN', keys[1])
  if there > tonumber(args[1]) then return {WORDS.applied} end
  if there < tonumber(args[1]) then return {WORDS.refused, there} end
  redis.call('RPUSH', keys[1], args[2])
  redis.call('EXPIRE', keys[1], args[3])
  return {WORDS.applied}
end
register('keep_part', keep_part, {'allow-oom'})
