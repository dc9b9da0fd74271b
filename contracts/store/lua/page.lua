-- page: a tenant's job ids, newest first, below a cursor, out of the open and the closed ones
-- KEYS  1 tenant's list zset (score 0 open, 1 closed; ids sort by time)
-- ARGV  1 cursor id (exclusive) or ''   2 most ids   3 '1' with open ones   4 '1' with closed ones
-- Reply ids
-- Events none
-- Guard none
local function below(key, first, last, cursor)  -- how many of ranks [first, last) sort before the cursor
  if cursor == '' then return last end
  local low, high = first, last
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', key, middle, middle)[1] < cursor then low = middle + 1 else high = middle end
  end
  return low
end

local function page(keys, args)
  local limit, cursor = tonumber(args[2]), args[1]
  local open, all = redis.call('ZCOUNT', keys[1], 0, 0), redis.call('ZCARD', keys[1])
  local ids = {}
  for _, class in ipairs({{args[3], 0, open}, {args[4], open, all}}) do
    if class[1] == '1' then
      local stop = below(keys[1], class[2], class[3], cursor)
      local first = math.max(class[2], stop - limit)
      if stop > first then
        for _, id in ipairs(redis.call('ZRANGE', keys[1], first, stop - 1)) do ids[#ids + 1] = id end
      end
    end
  end
  table.sort(ids, function(a, b) return a > b end)
  return {unpack(ids, 1, math.min(limit, #ids))}
end
register('page', page, {'no-writes'})
