-- trim: the log begins at what somebody may still need of it
-- KEYS  1 archive hash   2 log stream   3 meta hash   4 snapshot pointer hash
-- ARGV  1 token   2 most entries to remove   3 '' or ms: what was written then or later stays in any case
-- Reply APPLIED position removed-count | FENCED
--       position: the first that is kept for sure: the last one sealed, folded by the snapshot and handed to each group
-- Events none
-- Guard another token; nothing that is not sealed, in the scheduler's snapshot, and done with by every group is removed
local function trim(keys, args)
  local h = redis.call('HMGET', keys[1], 'token', 'upto')
  if h[1] ~= args[1] then return {WORDS.fenced} end
  local bound = h[2]
  local function needs(position) if before(position, bound) then bound = position end end
  needs(redis.call('HGET', keys[4], 'position') or '0-0')
  if args[3] ~= '' then needs(args[3] .. '-0') end
  for _, group in ipairs(groups_of(keys[2])) do
    needs(group['last-delivered-id'])
    if group.pending > 0 then needs(redis.call('XPENDING', keys[2], group.name)[2]) end
  end
  if before(redis.call('HGET', keys[3], 'trimmed') or '0-0', bound) then redis.call('HSET', keys[3], 'trimmed', bound) end
  return {WORDS.applied, bound, redis.call('XTRIM', keys[2], 'MINID', '~', bound, 'LIMIT', args[2])}
end
register('trim', trim, {'allow-oom'})
