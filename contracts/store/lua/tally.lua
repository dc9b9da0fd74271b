-- tally: what tenants used is counted up to a position; or counts that were not what the log says are set right
-- KEYS  1 archive hash   2 hash of what is counted   3.. hashes of a day: tenant -> a line 'model n n n' for each model
-- ARGV  1 token, '' sets right   2 'upto mended' as the caller saw them; to set right: mended   3 new upto; the one seen
--       4 attempts under way there   5 JSON list of {KEYS index, tenant, model, numbers to add}   6 field, 7 value ... to set
-- Reply APPLIED upto | FENCED | CONFLICT upto
-- Events none
-- Guard another token; another upto, or somebody set it right since; the same tally again is answered as it was
local function sum(before, more)
  local numbers, at = {}, 0
  for n in string.gmatch(before, '%d+') do numbers[#numbers + 1] = tonumber(n) end
  for n in string.gmatch(more, '-?%d+') do
    at = at + 1
    numbers[at] = (numbers[at] or 0) + tonumber(n)
  end
  for i = 1, #numbers do numbers[i] = string.format('%.0f', math.max(0, numbers[i])) end
  return table.concat(numbers, ' ')
end

local function add_row(key, tenant, model, more)
  local lines, before = {}, ''
  for line in string.gmatch(redis.call('HGET', key, tenant) or '', '[^\n]+') do
    local of, numbers = string.match(line, '^(%S*) ([%d ]+)$')
    if of == model then before = numbers elseif of then lines[#lines + 1] = line end
  end
  local after = sum(before, more)
  if string.find(after, '[1-9]') then lines[#lines + 1] = model .. ' ' .. after end
  table.sort(lines)
  if #lines > 0 then redis.call('HSET', key, tenant, table.concat(lines, '\n')) else redis.call('HDEL', key, tenant) end
end

local function tally(keys, args)
  local adds = args[1] ~= ''
  if adds and redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  local h = redis.call('HMGET', keys[2], 'upto', 'mended')
  local upto, mended = h[1] or '0-0', h[2] or '0'
  if adds and upto == args[3] then return {WORDS.applied, upto} end
  if (adds and upto .. ' ' .. mended or mended) ~= args[2] then return {WORDS.conflict, upto} end
  for _, row in ipairs(cjson.decode(args[5])) do add_row(keys[row[1]], row[2], row[3], row[4]) end
  if adds then redis.call('HSET', keys[2], 'upto', args[3]) else redis.call('HINCRBY', keys[2], 'mended', 1) end
  if adds or upto == args[3] then redis.call('HSET', keys[2], 'flights', args[4], unpack(args, 6)) end
  return {WORDS.applied, adds and args[3] or upto}
end
register('tally', tally, {'allow-oom'})
