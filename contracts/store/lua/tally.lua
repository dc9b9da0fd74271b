-- tally: what tenants used is counted up to a position; or counts that were not what the log says are set right
-- KEYS  1 archive hash   2 hash of what is counted   3.. hashes of rows, one for each day
-- ARGV  1 token, '' sets right   2 'upto mended' as the caller saw them; to set right: mended   3 new upto; the one seen
--       4 attempts under way there   5 JSON list of {KEYS index, field, numbers to add}   6 field, 7 value ... to set as well
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

local function tally(keys, args)
  local adds = args[1] ~= ''
  if adds and redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  local h = redis.call('HMGET', keys[2], 'upto', 'mended')
  local upto, mended = h[1] or '0-0', h[2] or '0'
  if adds and upto == args[3] then return {WORDS.applied, upto} end
  if (adds and upto .. ' ' .. mended or mended) ~= args[2] then return {WORDS.conflict, upto} end
  for _, row in ipairs(cjson.decode(args[5])) do
    local key = keys[row[1]]
    local value = sum(redis.call('HGET', key, row[2]) or '', row[3])
    if string.find(value, '[1-9]') then redis.call('HSET', key, row[2], value) else redis.call('HDEL', key, row[2]) end
  end
  if adds then redis.call('HSET', keys[2], 'upto', args[3]) else redis.call('HINCRBY', keys[2], 'mended', 1) end
  if adds or upto == args[3] then redis.call('HSET', keys[2], 'flights', args[4], unpack(args, 6)) end
  return {WORDS.applied, adds and args[3] or upto}
end
register('tally', tally, {'allow-oom'})
