-- erase_deliveries: what deliveries of an erased job say of it is gone; those that wait are given up
-- KEYS  1 log stream   2 prefix of deliveries
-- ARGV  1 now_ms or 0   2 tenant   3 how their ids begin   4 go on behind this id, or ''   5 most   6 seconds to keep them
-- Reply APPLIED erased-count last-id, '' at the end
-- Events webhook.exhausted for each that waited
-- Guard one that holds nothing of the job is left alone
local CONTENT = {'body', 'url', 'content', 'traceparent'}

-- Of an attempt stays when it was and how it ended: a receiver's answer may repeat what it was sent.
local function without_answers(key)
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if string.find(name, '^a:%d+$') then
      local ok, made = pcall(cjson.decode, redis.call('HGET', key, name))
      if not ok or type(made) ~= 'table' then made = {} end
      made.headers, made.body = nil, nil
      redis.call('HSET', key, name, cjson.encode(made))
    end
  end
end

local function erase_delivery(keys, at, id, now, args)
  local key = at .. 'delivery:' .. id
  local h = job_fields(key, 'state', 'endpoint', 'bare', 'job', 'event', 'try')
  if not h[1] or h[1] == 'erased' or h[3] then return 0 end
  without_answers(key)
  redis.call('HDEL', key, unpack(CONTENT))
  redis.call('HSET', key, 'state', 'erased')
  redis.call('ZREM', at .. 'dead:' .. h[2], id)
  if h[1] == 'waiting' or h[1] == 'blocked' then
    append(keys, keys[1], id_for(args[1]), exhausted_event(id, {h[4], h[5], h[6]}, 'erased', ''))
    redis.call('HSET', key, 'outcome', 'erased', 'ended', as_ms(now))
    close(at, h[2], id, now, tonumber(args[6]))
    rescore(at, h[2], now)
  end
  return 1
end

local function erase_deliveries(keys, args)
  local at, now, count = keys[2], now_ms(args[1]), 0
  local low = args[4] ~= '' and '(' .. args[4] or '[' .. args[3]
  local ids = redis.call('ZRANGEBYLEX', at .. 'deliveries:' .. args[2], low, '[' .. args[3] .. '~', 'LIMIT', 0, args[5])
  for _, id in ipairs(ids) do count = count + erase_delivery(keys, at, id, now, args) end
  return {WORDS.applied, count, #ids == tonumber(args[5]) and ids[#ids] or ''}
end
register('erase_deliveries', erase_deliveries, {'allow-oom'})
