-- restore_body: what a job was asked, and answered, is in the store again as the archive kept it
-- KEYS  1 log stream   2 meta hash   3 job hash   4 body string
-- ARGV  1 now_ms or 0   2 write id   3 epoch of the log that was folded   4 how many bytes of the body were looked at
--       5 SHA-1 of those bytes as they were seen; 'none': there was nothing, 'other': it was no string
--       6 body   7 write (prelude): projection.rebuilt
-- Reply APPLIED position | CONFLICT | GONE
-- Events as given
-- Guard the epoch; a job that is forgotten or erased has no content; the body as it was seen; a write id seen before is answered again
local function seen_as(key, bytes)
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'string' then return kind == 'none' and kind or 'other' end
  return redis.sha1hex(redis.call('GETRANGE', key, 0, bytes - 1))
end

local function restore_body(keys, args)
  local kept = position_of_op(keys[2], args[2])
  if kept then return {WORDS.applied, kept} end
  if redis.call('HGET', keys[2], 'epoch') ~= args[3] then return {WORDS.conflict} end
  local h = job_fields(keys[3], 's', 'er')
  if not h[1] or h[2] then return {WORDS.gone} end
  if seen_as(keys[4], tonumber(args[4])) ~= args[5] then return {WORDS.conflict} end
  redis.call('SET', keys[4], args[6])
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[7]))
  keep_op(keys[2], args[2], p)
  return {WORDS.applied, p}
end
register('restore_body', restore_body, {'allow-oom'})
