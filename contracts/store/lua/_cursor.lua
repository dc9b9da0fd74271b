-- Shared by the verbs that know where the readers of a log stand; not a verb.
local function about_log(log)
  local about, raw = {}, redis.call('XINFO', 'STREAM', log)
  for i = 1, #raw, 2 do about[raw[i]] = raw[i + 1] end
  return about
end

local function groups_of(log)
  local groups = {}
  for n, raw in ipairs(redis.call('XINFO', 'GROUPS', log)) do
    groups[n] = {}
    for i = 1, #raw, 2 do groups[n][raw[i]] = raw[i + 1] end
  end
  return groups
end

local function group_of(log, name)
  for _, group in ipairs(groups_of(log)) do
    if group.name == name then return group end
  end
  return nil
end

local function before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if tonumber(a_ms) ~= tonumber(b_ms) then return tonumber(a_ms) < tonumber(b_ms) end
  return tonumber(a_seq) < tonumber(b_seq)
end

-- How many entries of the log lie up to `cursor`, counted from the first that there ever was; nil where that is not
-- known. `count` entries were read since the group stood where it stands, nil: who knows.
local MOST_COUNTED = 2000
local function read_up_to(log, group, cursor, count)
  local about = about_log(log)
  local first, trimmed = about['first-entry'], about['entries-added'] - about.length
  if not before(cursor, about['last-generated-id']) then return about['entries-added'] end
  if not first or before(cursor, first[1]) then return trimmed end
  if not group or before(group['last-delivered-id'], first[1]) then
    local found = #redis.call('XRANGE', log, '-', cursor, 'COUNT', MOST_COUNTED + 1)
    return found <= MOST_COUNTED and trimmed + found or nil
  end
  return count and group['entries-read'] and group['entries-read'] + count
end

-- The group stands at its cursor, whoever lost it; `lag` is nil, not wrong, where it cannot be known.
local function stand(log, name, cursor, count)
  local group = group_of(log, name)
  if group and group['last-delivered-id'] == cursor then return end
  local read = read_up_to(log, group, cursor, count)
  local counted = read and {'ENTRIESREAD', string.format('%.0f', read)} or {}
  if group then
    redis.call('XGROUP', 'SETID', log, name, cursor, unpack(counted))
  else
    redis.call('XGROUP', 'CREATE', log, name, cursor, unpack(counted))
  end
end
