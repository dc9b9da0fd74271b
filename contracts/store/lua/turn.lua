-- turn: one turn of the leader: decisions in order, each checked, then written, all under one token
-- KEYS  1 leader hash   2 log stream   3 usage hash   4 meta hash   5 archive hash   6.. as the decisions name them
-- ARGV  1 now_ms or 0   2 token   3 turn number   4 lease ms   5 cursor   6 entries read up to it   7 trim below or ''
--       8 decisions: JSON list of writes (prelude), may be empty   9 how many jobs and slots are set aside
-- Reply APPLIED now_ms last-position verdicts (JSON list of {word, position, whose guard refused: job, worker or archive})
--       last-position: of the last entry written; after a refusal the end of the log, where its reason is
-- Events as given
-- Guard another token: FENCED; where there is an archive, only the archivist forgets and trims. The turn before is answered again as it was; any other number is REFUSED
local function turn(keys, args)
  local h = redis.call('HMGET', keys[1], 'token', 'turn', 'verdicts', 'last')
  if h[1] ~= args[2] then return {WORDS.fenced} end
  local now, number = now_ms(args[1]), tonumber(args[3])
  local stamp = string.format('%.0f', now)
  if number == tonumber(h[2]) and h[3] then return {WORDS.applied, stamp, h[4], h[3]} end
  if number ~= tonumber(h[2]) + 1 then return {WORDS.refused, h[2]} end
  local last, verdicts, refused, archived = '', {}, false, redis.call('EXISTS', keys[5]) == 1
  for i, w in ipairs(cjson.decode(args[8])) do
    local word, whose = refuses(keys, w)
    if w.forget and archived and not word then word, whose = WORDS.refused, 'archive' end
    if word then
      local _, p = last_of(keys[w.k or 1])
      verdicts[i], refused = {word, p, whose}, true
    else
      local p = commit(keys, keys[2], keys[3], id_for(args[1]), w)
      if w.forget then
        redis.call('SET', keys[w.forget[1]], p ~= '' and p or '0-0', 'EX', w.forget[2])
        redis.call('ZREM', keys[w.forget[3]], w.j)
      end
      if p ~= '' then last = p end
      verdicts[i] = {WORDS.applied, p}
    end
  end
  if refused then last = (redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1] or {last})[1] end
  local answer = #verdicts == 0 and '[]' or cjson.encode(verdicts)
  redis.call('HSET', keys[1], 'turn', number, 'until', string.format('%.0f', now + args[4]), 'verdicts', answer, 'last', last,
    'aside', args[9])
  redis.call('HSET', keys[4], 'cursor:scheduler', args[5])
  if redis.pcall('XGROUP', 'SETID', keys[2], 'scheduler', args[5], 'ENTRIESREAD', args[6]).err then
    redis.pcall('XGROUP', 'CREATE', keys[2], 'scheduler', args[5], 'MKSTREAM', 'ENTRIESREAD', args[6])
  end
  if args[7] ~= '' and not archived then
    local mirror, below = group_of(keys[2], 'mirror'), args[7]
    if mirror and before(mirror['last-delivered-id'], below) then below = mirror['last-delivered-id'] end
    redis.call('HSET', keys[4], 'trimmed', below)
    redis.call('XTRIM', keys[2], 'MINID', '~', below, 'LIMIT', 10000)
  end
  return {WORDS.applied, stamp, last, answer}
end
register('turn', turn, {'allow-oom'})
