-- ask: questions to the leader of a pool are in its stream
-- KEYS  1 questions stream   2 leader hash
-- ARGV  1 now_ms or 0   2 who asks   3 number of this batch   4 questions (JSON list)   5 most entries kept
--       6 seconds until the stream goes by itself
-- Reply APPLIED | GONE
-- Events none
-- Guard a pool that nobody leads is GONE at once; a repeat asks twice, and one of the answers is for nobody
local function ask(keys, args)
  if tonumber(redis.call('HGET', keys[2], 'until') or 0) <= now_ms(args[1]) then return {WORDS.gone} end
  redis.call('XADD', keys[1], 'MAXLEN', args[5], '*', 'a', args[2], 'b', args[3], 'q', args[4])
  redis.call('EXPIRE', keys[1], args[6])
  return {WORDS.applied}
end
register('ask', ask, {'allow-oom'})
