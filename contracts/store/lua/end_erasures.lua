-- end_erasures: of these jobs nothing is left to remove
-- KEYS  1 archive hash   2 hash of erasures
-- ARGV  1 token, or '' where no archivist ever was   2.. jobs
-- Reply APPLIED count | FENCED
-- Events none
-- Guard another token; where there is an archive, only who leads it knows what lies there
local function end_erasures(keys, args)
  if (redis.call('HGET', keys[1], 'token') or '') ~= args[1] then return {WORDS.fenced} end
  return {WORDS.applied, redis.call('HDEL', keys[2], unpack(args, 2))}
end
register('end_erasures', end_erasures, {'allow-oom'})
