-- open: the pool's log exists with its groups at their cursors, and its layout is known
-- KEYS  1 log stream   2 meta hash
-- ARGV  1 layout version   2.. group names
-- Reply APPLIED layout epoch
-- Events none
-- Guard a newer layout changes nothing; the caller must refuse to start
local function open(keys, args)
  redis.call('HSETNX', keys[2], 'layout', args[1])
  redis.call('HSETNX', keys[2], 'epoch', '1')
  local h = redis.call('HMGET', keys[2], 'layout', 'epoch')
  if tonumber(h[1]) > tonumber(args[1]) then return {WORDS.refused, h[1], h[2]} end
  if redis.call('EXISTS', keys[1]) == 0 then
    -- the only way to make a stream without an entry
    redis.call('XGROUP', 'CREATE', keys[1], 'opening', '0-0', 'MKSTREAM')
    redis.call('XGROUP', 'DESTROY', keys[1], 'opening')
  end
  for i = 2, #args do
    local at = redis.call('HGET', keys[2], 'cursor:' .. args[i]) or '0-0'
    -- the one error that is expected here: the group exists
    redis.pcall('XGROUP', 'CREATE', keys[1], args[i], at)
  end
  return {WORDS.applied, h[1], h[2]}
end
register('open', open, {'allow-oom'})
