-- register: a worker exists with its own work stream, and may be offered jobs
-- KEYS  1 log stream   2 worker hash   3 work stream   4 workers set
-- ARGV  1 now_ms or 0   2 write (prelude): worker.registered   3.. hash fields and values
-- Reply APPLIED position
-- Events worker.registered
-- Guard a worker id that exists is answered again
local function register_verb(keys, args)
  local kept = redis.call('HGET', keys[2], 'registered')
  if kept then return {WORDS.applied, kept} end
  if redis.call('EXISTS', keys[1]) == 0 then return {WORDS.gone} end
  local p = append(keys, keys[1], id_for(args[1]), cjson.decode(args[2]))
  redis.call('HSET', keys[2], 'state', 'open', 'b', 1, 'registered', p, unpack(args, 3))
  redis.call('SADD', keys[4], redis.call('HGET', keys[2], 'id'))
  redis.pcall('XGROUP', 'CREATE', keys[3], 'gpu', '0', 'MKSTREAM')
  return {WORDS.applied, p}
end
register('register', register_verb, {'allow-oom'})
