-- tally: what tenants used is counted up to a position; or rows are set to what the log says
-- KEYS  1 archive hash   2 hash of what is counted   3.. hashes of rows, one for each day
-- ARGV  1 token, '' sets rows instead of adding to them   2 upto the caller saw   3 new upto   4 attempts under way there
--       5 JSON list of {KEYS index, field, 'n n n'}   6 field, 7 value ... to set where counting begins, or days are dropped
-- Reply APPLIED upto | FENCED | CONFLICT upto
-- Events none
-- Guard another token; another upto than expected; the same tally again is answered as it was
local function sum(before, more)
  local numbers, at = {}, 0
  for n in string.gmatch(before, '%d+') do numbers[#numbers + 1] = tonumber(n) end
  for n in string.gmatch(more, '%d+') do
    at = at + 1
    numbers[at] = (numbers[at] or 0) + tonumber(n)
  end
  for i = 1, #numbers do numbers[i] = string.format('%.0f', numbers[i]) end
  return table.concat(numbers, ' ')
end

local function tally(keys, args)
  if args[1] ~= '' and redis.call('HGET', keys[1], 'token') ~= args[1] then return {WORDS.fenced} end
  local upto, adds = redis.call('HGET', keys[2], 'upto') or '0-0', args[1] ~= ''
  if adds and upto == args[3] then return {WORDS.applied, upto} end
  if upto ~= args[2] then return {WORDS.conflict, upto} end
  for _, row in ipairs(cjson.decode(args[5])) do
    local key = keys[row[1]]
    local value = adds and sum(redis.call('HGET', key, row[2]) or '', row[3]) or row[3]
    if value == '' then redis.call('HDEL', key, row[2]) else redis.call('HSET', key, row[2], value) end
  end
  redis.call('HSET', keys[2], 'upto', args[3], 'flights', args[4], unpack(args, 6))
  return {WORDS.applied, args[3]}
end
register('tally', tally, {'allow-oom'})
