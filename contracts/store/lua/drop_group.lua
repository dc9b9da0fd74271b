-- drop_group: a group that nobody reads any more is gone from the log; the log says so, and may be trimmed past it
-- KEYS  1 log stream   2 meta hash   3 hash of who moves the group's cursor, of one that has no members
-- ARGV  1 now_ms or 0   2 group   3 position the caller saw   4 ms since which a member that asked is alive
--       5 '1' whether or not somebody reads it   6 write id   7 write (prelude)
-- Reply APPLIED position | GONE no such group | REFUSED it is read | CONFLICT it was read meanwhile
-- Events as given
-- Guard a write id seen before is answered again
local function drop_group(keys, args)
  local kept = position_of_op(keys[2], args[6])
  if kept then return {WORDS.applied, kept} end
  local found
  for _, fields in ipairs(redis.pcall('XINFO', 'GROUPS', keys[1])) do
    local group = {}
    for i = 1, #fields, 2 do group[fields[i]] = fields[i + 1] end
    if group.name == args[2] then found = group end
  end
  if not found then return {WORDS.gone} end
  if found['last-delivered-id'] ~= args[3] then return {WORDS.conflict} end
  if args[5] ~= '1' then
    local until_ms = keys[3] and redis.pcall('HGET', keys[3], 'until')
    if type(until_ms) == 'string' and tonumber(until_ms) > now_ms(args[1]) then return {WORDS.refused} end
    for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', keys[1], args[2])) do
      for i = 1, #fields, 2 do
        if fields[i] == 'idle' and fields[i + 1] <= tonumber(args[4]) then return {WORDS.refused} end
      end
    end
  end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[7]))
  redis.call('XGROUP', 'DESTROY', keys[1], args[2])
  redis.call('HDEL', keys[2], 'cursor:' .. args[2])
  if keys[3] then redis.call('DEL', keys[3]) end
  keep_op(keys[2], args[6], p)
  return {WORDS.applied, p}
end
register('drop_group', drop_group, {'allow-oom'})
