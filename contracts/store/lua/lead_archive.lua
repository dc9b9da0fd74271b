-- lead_archive: this token is the archivist's; from the first one on nobody else forgets or trims
-- KEYS  1 archive hash   2 meta hash
-- ARGV  1 now_ms or 0   2 token   3 lease ms   4 id of the place where the archive lies
-- Reply APPLIED now_ms upto digest count below epoch checkpoint-count checkpoint-ms | REFUSED ms-left | CONFLICT place (it lies elsewhere)
--       below: of what lies before it nothing was ever archived
-- Events none
-- Guard another token's lease that has not run out; another place than the first archivist's
local function lead_archive(keys, args)
  local now = now_ms(args[1])
  local h = redis.call('HMGET', keys[1], 'token', 'until', 'place')
  if h[3] and h[3] ~= args[4] then return {WORDS.conflict, h[3]} end
  local left = tonumber(h[2] or 0) - now
  if h[1] and h[1] ~= args[2] and left > 0 then return {WORDS.refused, string.format('%.0f', left)} end
  if redis.call('HEXISTS', keys[1], 'upto') == 0 then
    local below = redis.call('HGET', keys[2], 'trimmed') or '0-0'
    redis.call('HSET', keys[1], 'upto', '0-0', 'digest', string.rep('0', 64), 'count', 0, 'below', below)
  end
  redis.call('HSET', keys[1], 'place', args[4], 'token', args[2], 'until', string.format('%.0f', now + args[3]))
  local m = redis.call('HMGET', keys[1], 'upto', 'digest', 'count', 'below', 'checkpointed', 'checkpoint_ms')
  local epoch = redis.call('HGET', keys[2], 'epoch') or '1'
  return {WORDS.applied, string.format('%.0f', now), m[1], m[2], m[3], m[4], epoch, m[5] or '0', m[6] or '0'}
end
register('lead_archive', lead_archive, {'allow-oom'})
