-- append: events of a writer without a fence (ingest) are in the log, once
-- KEYS  1 log stream   2 usage hash   3 job hash   4 body string   5.. as the write names them
-- ARGV  1 now_ms or 0   2 write id   3 write (prelude)   4 line for the body or ''
--       5 '' or JSON of the limits of admission (prelude), when the job is opened again
-- Reply APPLIED position sequence | CONFLICT sequence position | GONE | FENCED | REFUSED | REFUSED sequence position limit
-- Events as given
-- Guard the write's guards; a write id among the job's last four is answered again
local function append_verb(keys, args)
  local kept = position_of_op(keys[3], args[2])
  if kept then return {WORDS.applied, kept, (last_of(keys[3]))} end
  local w = cjson.decode(args[3])
  local word = refuses(keys, w)
  if word then
    local n, p = last_of(keys[3])
    return {word, n, p}
  end
  if args[5] ~= '' then
    local h = job_fields(keys[3], 't', 'u', 'n', 'p')
    local limit = over_limit(keys[2], keys[w.open], h[1] or '', tonumber(h[2] or 0), cjson.decode(args[5]))
    if limit then return {WORDS.refused, h[3], h[4], limit} end
  end
  if args[4] ~= '' then redis.call('APPEND', keys[4], args[4]) end
  local p, n = commit(keys, keys[1], keys[2], id_for(args[1]), w)
  keep_op(keys[3], args[2], p)
  return {WORDS.applied, p, n}
end
register('append', append_verb, {'allow-oom'})
