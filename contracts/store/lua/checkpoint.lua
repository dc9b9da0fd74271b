-- checkpoint: what the archive holds so far is signed in the log
-- KEYS  1 archive hash   2 log stream
-- ARGV  1 now_ms or 0   2 token   3 entries archived when it was signed   4 write (prelude)
-- Reply APPLIED position | FENCED | CONFLICT
-- Events log.checkpointed
-- Guard another token; another one was written for as many entries
local function checkpoint(keys, args)
  local h = redis.call('HMGET', keys[1], 'token', 'checkpointed')
  if h[1] ~= args[2] then return {WORDS.fenced} end
  if tonumber(h[2] or 0) >= tonumber(args[3]) then return {WORDS.conflict} end
  local p = append(keys, keys[2], id_for(args[1]), cjson.decode(args[4]))
  redis.call('HSET', keys[1], 'checkpointed', args[3], 'checkpoint_ms', string.match(p, '^%d+'))
  return {WORDS.applied, p}
end
register('checkpoint', checkpoint, {'allow-oom'})
