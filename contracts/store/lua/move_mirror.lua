-- move_mirror: the topic holds the log up to a new cursor, as the broker acknowledged
-- KEYS  1 mirror hash   2 log stream   3 meta hash   4 poison stream
-- ARGV  1 token   2 cursor the caller saw   3 new cursor   4 entries between   5 records of them in the topic
--       6 JSON {partition: last position in it}   7 poison: JSON list of {position, reason}
-- Reply APPLIED cursor | FENCED | CONFLICT cursor
-- Events none
-- Guard another token; another cursor than expected; the same move again is answered as it was
local POISON_KEPT = 10000

local function move_mirror(keys, args)
  if redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  local cursor = redis.call('HGET', keys[3], 'cursor:mirror') or '0-0'
  if cursor == args[3] then return {WORDS.applied, cursor} end
  if cursor ~= args[2] then return {WORDS.conflict, cursor} end
  stand(keys[2], 'mirror', args[3], tonumber(args[4]))
  redis.call('HSET', keys[3], 'cursor:mirror', args[3])
  redis.call('HINCRBY', keys[1], 'count', args[5])
  for partition, position in pairs(cjson.decode(args[6])) do
    redis.call('HSET', keys[1], 'sent:' .. partition, position)
  end
  for _, entry in ipairs(cjson.decode(args[7])) do
    redis.call('XADD', keys[4], 'MAXLEN', '~', POISON_KEPT, '*', 'group', 'mirror', 'at', entry[1], 'reason', entry[2])
    redis.call('HINCRBY', keys[1], 'aside', 1)
  end
  return {WORDS.applied, args[3]}
end
register('move_mirror', move_mirror, {'allow-oom'})
