-- keep_snapshot: the pointer names a snapshot whose parts are all stored; the one before is gone
-- KEYS  1 pointer hash   2 parts list of the new one   3 parts list of the one before (or the new one again)
-- ARGV  1 id   2 position   3 number of parts   4 id the caller saw in the pointer, or ''   5 digest of the parts
-- Reply APPLIED | REFUSED position (not newer) | CONFLICT (another one was kept meanwhile) | GONE (parts missing)
-- Events none
-- Guard the pointer only moves forward
local function later(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if tonumber(a_ms) ~= tonumber(b_ms) then return tonumber(a_ms) > tonumber(b_ms) end
  return tonumber(a_seq) > tonumber(b_seq)
end

local function keep_snapshot(keys, args)
  local h = redis.call('HMGET', keys[1], 'id', 'position')
  if h[1] == args[1] then return {WORDS.applied} end
  if (h[1] or '') ~= args[4] then return {WORDS.conflict} end
  if h[2] and not later(args[2], h[2]) then return {WORDS.refused, h[2]} end
  if redis.call('LLEN', keys[2]) ~= tonumber(args[3]) then return {WORDS.gone} end
  redis.call('PERSIST', keys[2])
  redis.call('HSET', keys[1], 'id', args[1], 'position', args[2], 'digest', args[5])
  if keys[3] ~= keys[2] then redis.call('DEL', keys[3]) end
  return {WORDS.applied}
end
register('keep_snapshot', keep_snapshot, {'allow-oom'})
