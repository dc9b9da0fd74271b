-- resign: the next candidate need not wait for the lease of a leader that stops
-- KEYS  1 leader hash
-- ARGV  1 token
-- Reply APPLIED | FENCED
-- Events none
-- Guard another token
local function resign(keys, args)
  if redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  redis.call('HSET', keys[1], 'until', 0)
  return {WORDS.applied}
end
register('resign', resign, {'allow-oom'})
