-- live: a piece of a running attempt's log is in the pool's live stream
-- KEYS  1 live stream
-- ARGV  1 most entries kept   2 seconds until the stream goes by itself   3 job   4 fence
--       5 where in the attempt's log the piece begins; -1: the log is stored, nothing more comes   6 bytes
-- Reply APPLIED
-- Events none
-- Guard none: it is lossy, and who reads it holds every piece against its place
local function live(keys, args)
  redis.call('XADD', keys[1], 'MAXLEN', '~', args[1], '*', 'j', args[3], 'f', args[4], 'o', args[5], 'b', args[6])
  redis.call('EXPIRE', keys[1], args[2])
  return {WORDS.applied}
end
register('live', live, {})
