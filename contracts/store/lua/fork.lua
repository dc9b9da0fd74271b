-- fork: the log is not the one that was archived: it has a new epoch, and ids above all that were ever seen
-- KEYS  1 archive hash   2 meta hash   3 log stream
-- ARGV  1 token   2 epoch the caller saw   3 the highest id that was seen
-- Reply APPLIED epoch | FENCED
-- Events none
-- Guard another token; a fork of that epoch is answered with the newer one; ids never move down
local function fork(keys, args)
  if redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  local last = '0-0'
  local about = redis.call('XINFO', 'STREAM', keys[3])
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then last = about[i + 1] end
  end
  if before(last, args[3]) then redis.call('XSETID', keys[3], args[3]) end
  if redis.call('HGET', keys[2], 'epoch') == args[2] then redis.call('HINCRBY', keys[2], 'epoch', 1) end
  return {WORDS.applied, redis.call('HGET', keys[2], 'epoch')}
end
register('fork', fork, {'allow-oom'})
