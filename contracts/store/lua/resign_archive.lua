-- resign_archive: the next archivist need not wait for the lease of one that stops
-- KEYS  1 archive hash
-- ARGV  1 token
-- Reply APPLIED | FENCED
-- Events none
-- Guard another token
local function resign_archive(keys, args)
  if redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  redis.call('HSET', keys[1], 'until', 0)
  return {WORDS.applied}
end
register('resign_archive', resign_archive, {'allow-oom'})
