-- history: a job's hash, body and newest events by its back pointers, without looking at any other entry
-- KEYS  1 log stream   2 job hash   3 body string
-- ARGV  1 stop at this sequence (exclusive)   2 most events   3 '1' for the body, '' without
-- Reply {hash as fields and values}, body or '', {events, newest first, as {id, fields}} ; an empty hash: unknown job
-- Events none
-- Guard none; an event below the trim point ends the walk
local function history(keys, args)
  local hash = redis.pcall('HGETALL', keys[2])  -- as in job_fields: what is no hash is no job
  local fields = hash.err and {} or hash.map or hash
  local body, entries = '', {}
  if #fields == 0 then return {fields, body, entries} end
  if args[3] == '1' then body = body_of(keys[3]) end
  local p = redis.call('HGET', keys[2], 'p')
  while p and #entries < tonumber(args[2]) do
    local entry = redis.call('XRANGE', keys[1], p, p)[1]
    if not entry then break end
    p = nil
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'p' then p = entry[2][i + 1] end
      if entry[2][i] == 'n' and tonumber(entry[2][i + 1]) <= tonumber(args[1]) then return {fields, body, entries} end
    end
    entries[#entries + 1] = entry
  end
  return {fields, body, entries}
end
register('history', history, {'no-writes'})
