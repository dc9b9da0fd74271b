-- hold_claims: claims run out this much later from now; 0 gives them back
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 claim ms   3 JSON list of {endpoint, {id, number of the try under way}, ...}
-- Reply APPLIED count
-- Events none
-- Guard a try that was settled by another, or a delivery that is held or done with, is nobody's claim any more
local function hold_claims(keys, args)
  local at, now, count = keys[1], now_ms(args[1]), 0
  local ends = as_ms(now + args[2])
  for _, of_one in ipairs(cjson.decode(args[3])) do
    local name = of_one[1]
    for i = 2, #of_one do
      local id, h = of_one[i][1], job_fields(at .. 'delivery:' .. of_one[i][1], 'state', 'try')
      if h[1] == 'waiting' and tonumber(h[2]) == of_one[i][2] - 1 then
        redis.call('ZADD', at .. 'due:' .. name, ends, id)
        redis.call(args[2] == '0' and 'ZREM' or 'ZADD', at .. 'flight:' .. name, args[2] == '0' and id or ends, id)
        count = count + 1
      end
    end
    rescore(at, name, now)
  end
  return {WORDS.applied, count}
end
register('hold_claims', hold_claims, {'allow-oom'})
