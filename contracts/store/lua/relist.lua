-- relist: a job that has ended, and whose end is sealed, is in the list from which it will be forgotten; any other is in none
-- KEYS  1 log stream   2 meta hash   3 archive hash   4 job hash   5.. zsets of ended jobs, one for each kind
-- ARGV  1 now_ms or 0   2 write id   3 epoch of the log that was folded   4 KEYS index of the zset in which it is to be, 0: in none
--       5 ms   6 write (prelude): projection.rebuilt
-- Reply APPLIED position | CONFLICT
-- Events as given
-- Guard the epoch; a job that moved since (its last event is not sealed) is the archivist's; a write id seen before is answered again
local function relist(keys, args)
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  if redis.call('HGET', keys[2], 'epoch') ~= args[3] then return {WORDS.conflict} end
  local p, upto = job_fields(keys[4], 'p')[1], redis.call('HGET', keys[3], 'upto')
  local index, changed = tonumber(args[4]), 0
  if not upto or (p and before(upto, p)) or (index > 0 and not p) then return {WORDS.conflict} end
  for i = 5, #keys do
    local job = string.match(keys[4], '([^:]+)$')
    if i == index then
      changed = changed + redis.call('ZADD', keys[i], 'NX', args[5], job)
    else
      changed = changed + redis.call('ZREM', keys[i], job)
    end
  end
  if changed == 0 then return {WORDS.conflict} end
  local at = append(keys, keys[1], id_for(args[1]), cjson.decode(args[6]))
  keep_op(keys[2], args[2], at)
  return {WORDS.applied, at}
end
register('relist', relist, {'allow-oom'})
