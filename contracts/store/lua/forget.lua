-- forget: jobs whose time is over are gone: hash, body and list entry; the log says so
-- KEYS  1 archive hash   2 log stream   3 usage hash   4 zset of ended jobs   5.. as the writes name them
-- ARGV  1 now_ms or 0   2 token   3 the first position that deliveries may still be planned from   4 JSON list of writes
-- Reply APPLIED forgotten-count | FENCED
-- Events job.forgotten, one for each
-- Guard another token; the write's guards; a job whose last event is not archived, or not planned, stays
local function forget(keys, args)
  local h = redis.call('HMGET', keys[1], 'token', 'upto')
  if h[1] ~= args[2] then return {WORDS.fenced} end
  local forgotten = 0
  for _, w in ipairs(cjson.decode(args[4])) do
    local word = refuses(keys, w)
    local last = redis.call('HGET', keys[w.k], 'p')
    if word == WORDS.gone then
      redis.call('ZREM', keys[4], w.j)
    elseif not word and w.forget and not before(h[2], last) and before(last, args[3]) then
      local p = commit(keys, keys[2], keys[3], id_for(args[1]), w)
      redis.call('SET', keys[w.forget[1]], p, 'EX', w.forget[2])
      redis.call('ZREM', keys[w.forget[3]], w.j)
      redis.call('ZREM', keys[4], w.j)
      forgotten = forgotten + 1
    end
  end
  return {WORDS.applied, forgotten}
end
register('forget', forget, {'allow-oom'})
