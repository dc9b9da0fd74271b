-- page_letters: dead letters of a pool from a place on, with what a filter asks of them
-- KEYS  1 zset of dead letters   2 prefix of job hashes   3 prefix of bodies
-- ARGV  1 score and 2 id of the place (exclusive)   3 most   4 '1' for newer ones, oldest first; '' for older ones, newest first
--       5.. fields of the job hash
-- Reply for each: id, score, '1' where its body is there, its fields
-- Events none
-- Guard none
local function ranks_below(key, score, id)
  local low, high = 0, redis.call('ZCARD', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = redis.call('ZRANGE', key, middle, middle, 'WITHSCORES')
    local there = tonumber(at[2])
    if there < score or (there == score and at[1] < id) then low = middle + 1 else high = middle end
  end
  return low
end

local function page_letters(keys, args)
  local score, id, most = tonumber(args[1]), args[2], tonumber(args[3])
  local first, last
  if args[4] == '1' then
    first = ranks_below(keys[1], score, id .. '~')
    last = first + most - 1
  else
    last = ranks_below(keys[1], score, id) - 1
    first = math.max(0, last - most + 1)
  end
  local found = {}
  if last < first then return found end
  local at = redis.call('ZRANGE', keys[1], first, last, 'WITHSCORES')
  for i = 1, #at, 2 do
    local fields = job_fields(keys[2] .. at[i], unpack(args, 5))
    local letter = {at[i], at[i + 1], tostring(redis.call('EXISTS', keys[3] .. at[i])), unpack(fields, 1, #args - 4)}
    for j = 1, #args - 1 do letter[j] = letter[j] or '' end
    table.insert(found, args[4] == '1' and #found + 1 or 1, letter)
  end
  return found
end
register('page_letters', page_letters, {'no-writes'})
