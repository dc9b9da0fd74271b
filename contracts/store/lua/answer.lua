-- answer: what the leader says to those who asked, each in a stream of its own
-- KEYS  1 leader hash   2.. answers stream of who asked
-- ARGV  1 token   2 most entries kept   3 seconds until a stream goes by itself
--       4.. number of the batch and its answers (JSON list), in the order of KEYS
-- Reply APPLIED | FENCED
-- Events none
-- Guard another token: a leader of the past has nothing to say
local function answer(keys, args)
  if redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  for i = 2, #keys do
    redis.call('XADD', keys[i], 'MAXLEN', args[2], '*', 'b', args[2 * i], 'r', args[2 * i + 1])
    redis.call('EXPIRE', keys[i], args[3])
  end
  return {WORDS.applied}
end
register('answer', answer, {'allow-oom'})
