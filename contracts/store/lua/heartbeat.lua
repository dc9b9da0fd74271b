-- heartbeat: the worker's counter has risen and says what it holds
-- KEYS  1 worker hash   2 work stream   3.. job hash of each attempt held
-- ARGV  1 held: JSON list of {job, fence} in the order of KEYS   2 its devices as JSON, '' when nothing changed
--       3 what it says of profiles as JSON, '' when nothing changed   4 what its models are pinned to, likewise
--       5.. entries of the work stream that are done with
-- Reply APPLIED counter state, then per attempt: 1 held, 0 fenced, c held and asked to cancel | GONE
-- Events none
-- Guard a worker that was marked lost or has left is GONE and must begin anew under another id
local function heartbeat(keys, args)
  local state = redis.call('HGET', keys[1], 'state')
  if not state then return {WORDS.gone} end
  local held, reply = cjson.decode(args[1]), {}
  local counter = redis.call('HINCRBY', keys[1], 'b', 1)
  redis.call('HSET', keys[1], 'held', args[1], 'seen', string.format('%.0f', now_ms('0')))  -- for people; leases count
  reply[1], reply[2], reply[3] = WORDS.applied, counter, state
  if args[2] ~= '' then redis.call('HSET', keys[1], 'devices', args[2]) end
  if args[3] ~= '' then redis.call('HSET', keys[1], 'profiles', args[3]) end
  if args[4] ~= '' then redis.call('HSET', keys[1], 'pins', args[4]) end
  local worker = redis.call('HGET', keys[1], 'id')
  for i, h in ipairs(held) do
    local job = job_fields(keys[2 + i], 'f', 'w', 'cr')
    local mine = tonumber(job[1] or -1) == h[2] and job[2] == worker
    reply[3 + i] = not mine and '0' or (job[3] and 'c' or '1')
  end
  -- Made again when the store lost it, at the beginning: all that lies in the stream is still to be done.
  redis.pcall('XGROUP', 'CREATE', keys[2], 'gpu', '0', 'MKSTREAM')
  for i = 5, #args do
    redis.call('XACK', keys[2], 'gpu', args[i])
    redis.call('XDEL', keys[2], args[i])
  end
  return reply
end
register('heartbeat', heartbeat, {'allow-oom'})
