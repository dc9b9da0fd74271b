-- settle_delivery: one attempt of a delivery is recorded, with what follows from it
-- KEYS  1 log stream   2 due zset   3 delivery hash
-- ARGV  1 now_ms or 0   2 number of this try   3 write (prelude): webhook.attempted and so on
--       4 next due ms, or '' when the delivery is settled   5 seconds to keep a settled one   6.. hash fields and values
-- Reply APPLIED position | CONFLICT tries | GONE
-- Events as given
-- Guard the try number: two senders with one delivery count one attempt
local function settle_delivery(keys, args)
  local tried = redis.call('HGET', keys[3], 'try')
  local w = cjson.decode(args[3])
  if not tried then
    redis.call('ZREM', keys[2], w.j)
    return {WORDS.gone}
  end
  if tonumber(tried) ~= tonumber(args[2]) - 1 then return {WORDS.conflict, tried} end
  local p = append(keys, keys[1], id_for(args[1]), w)
  redis.call('HSET', keys[3], 'try', args[2], unpack(args, 6))
  if args[4] == '' then
    redis.call('ZREM', keys[2], w.j)
    redis.call('EXPIRE', keys[3], args[5])
  else
    redis.call('ZADD', keys[2], args[4], w.j)
  end
  return {WORDS.applied, p or ''}
end
register('settle_delivery', settle_delivery, {'allow-oom'})
