-- rebuild: a job of the live state is what the log says of it
-- KEYS  1 log stream   2 meta hash   3 job hash   4 tenant's list zset   5 zset of dead letters
-- ARGV  1 now_ms or 0   2 write id   3 epoch of the log that was folded   4 what the job was then: '<n> <p> <rb>', 'none' or 'other'
--       5 JSON list of field, value, ...: a value of '' removes the field   6 score in the list, '' to be in none
--       7 write (prelude): projection.rebuilt   8 score among the dead letters, '' to be none
-- Reply APPLIED position | CONFLICT
-- Events as given
-- Guard the epoch; the job as it was when it was compared: whoever wrote meanwhile is right; a write id seen before is answered again
local function version_of(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then return 'none' end
  if kind ~= 'hash' then return 'other' end
  local h = redis.call('HMGET', key, 'n', 'p', 'rb')
  return (h[1] or '') .. ' ' .. (h[2] or '') .. ' ' .. (h[3] or '')
end

local function rebuild(keys, args)
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  if redis.call('HGET', keys[2], 'epoch') ~= args[3] then return {WORDS.conflict} end
  local version = version_of(keys[3])
  if version ~= args[4] then return {WORDS.conflict} end
  local w, job = cjson.decode(args[7]), string.match(keys[3], '([^:]+)$')
  if version == 'other' then redis.call('DEL', keys[3]) end
  local fields = cjson.decode(args[5])
  for i = 1, #fields, 2 do
    if fields[i + 1] == '' then redis.call('HDEL', keys[3], fields[i]) else redis.call('HSET', keys[3], fields[i], fields[i + 1]) end
  end
  if redis.call('TYPE', keys[4]).ok ~= 'zset' then redis.call('DEL', keys[4]) end
  if args[6] == '' and redis.call('ZREM', keys[4], job) == 0 then return {WORDS.conflict} end
  if args[6] ~= '' then redis.call('ZADD', keys[4], args[6], job) end
  if args[8] == '' then redis.call('ZREM', keys[5], job) else redis.call('ZADD', keys[5], args[8], job) end
  local p = append(keys, keys[1], id_for(args[1]), w)
  if redis.call('EXISTS', keys[3]) == 1 then redis.call('HSET', keys[3], 'rb', p) end  -- for other repairs that saw the same
  keep_op(keys[2], args[2], p)
  return {WORDS.applied, p}
end
register('rebuild', rebuild, {'allow-oom'})
