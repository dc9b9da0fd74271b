-- settle_delivery: one attempt of a delivery is recorded, with what follows from it for the delivery and its endpoint
-- KEYS  1 log stream   2 prefix of deliveries
-- ARGV  1 now_ms or 0   2 write (prelude): webhook.attempted and so on   3 JSON {e endpoint, try its number, due next ms or
--       nothing, keep s, dead, and of an attempt that was made: what, and unless it failed by us: ok 1 or 0, bucket,
--       gate ms, trip, base, cap, spread}
--       4.. hash fields and values
-- Reply APPLIED position row-of-failures since warned '1'-when-more-waits | CONFLICT tries | GONE
-- Events as given
-- Guard the try number: two senders with one delivery count one attempt; progress that was overtaken is not tried again
local function after_attempt(at, s, id, h, now)
  local key = at .. 'delivery:' .. id
  if s.due and h[2] and redis.call('HGET', at .. 'order:' .. s.e .. ':' .. h[3], 'latest') ~= id then
    redis.call('HSET', key, 'state', 'superseded', 'ended', as_ms(now))
    return close(at, s.e, id, now, KEEP_SUPERSEDED_S)
  end
  if s.due then return redis.call('ZADD', at .. 'due:' .. s.e, as_ms(s.due), id) end
  redis.call('HSET', key, 'ended', as_ms(now))
  close(at, s.e, id, now, s.keep, s.dead)
end

-- Its job was erased while it was on its way: what the receiver answered is not kept, and it is not tried again.
local function after_erasure(keys, args, w, s, h)
  if s.due then
    append(keys, keys[1], id_for(args[1]), exhausted_event(w.j, {h[3], h[5], s.try}, 'erased', ''))
  end
  redis.call('HSET', keys[2] .. 'delivery:' .. w.j, 'try', s.try)
end

local function settle_delivery(keys, args)
  local at, now, w, s = keys[2], now_ms(args[1]), cjson.decode(args[2]), cjson.decode(args[3])
  local key = at .. 'delivery:' .. w.j
  local h = job_fields(key, 'try', 'every', 'job', 'state', 'event')
  local tries = tonumber(h[1] or '')  -- one that cannot be read is set aside, and guards nothing
  if tries and tries ~= s.try - 1 then return {WORDS.conflict, h[1]} end
  redis.call('ZREM', at .. 'flight:' .. s.e, w.j)
  if not h[1] then
    redis.call('ZREM', at .. 'due:' .. s.e, w.j)
    rescore(at, s.e, now)
    return {WORDS.gone}
  end
  local p = append(keys, keys[1], id_for(args[1]), w)
  if h[4] == 'erased' then
    after_erasure(keys, args, w, s, h)
  else
    redis.call('HSET', key, 'try', s.try, unpack(args, 4))
    after_attempt(at, s, w.j, h, now)
  end
  if s.what then redis.call('HINCRBY', at .. 'outcomes', s.what, 1) end
  if s.ok then
    count_attempt(at, s, now)
    judge_endpoint(at, s, now)
  end
  rescore(at, s.e, now)
  local e = redis.call('HMGET', at .. 'endpoint:' .. s.e, 'row', 'since', 'warned')
  local more = redis.call('EXISTS', at .. 'due:' .. s.e)
  return {WORDS.applied, p or '', e[1] or '0', e[2] or '0', e[3] or '0', more}
end
register('settle_delivery', settle_delivery, {'allow-oom'})
