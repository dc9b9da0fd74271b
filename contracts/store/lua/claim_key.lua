-- claim_key: an Idempotency-Key of a tenant belongs to one request and one minted id
-- KEYS  1 claim hash   2 submits hash
-- ARGV  1 fingerprint   2 minted id   3 pool   4 time to live s   5 now_ms or 0   6 submits per minute, '' for no limit
-- Reply APPLIED id pool new submits-left | APPLIED kept-id kept-pool state submits-left | CONFLICT (other request)
--       | REFUSED 0 ms-until-the-next-submit
-- Events none
-- Guard a key that is taken keeps its id, also when what was asked is erased; a repeat of it is no submit; a refused one claims nothing
local function claim_key(keys, args)
  local h = redis.call('HMGET', keys[1], 'fp', 'id', 'pool', 'state')
  local per_minute, left, wait_ms = tonumber(args[6]), nil, nil
  if h[1] then
    if h[1] ~= '' and (h[1] ~= args[1] or h[3] ~= args[3]) then return {WORDS.conflict, h[2], h[3]} end
    if per_minute then left = parts_left(keys[2], per_minute, now_ms(args[5])) end
  else
    if per_minute then left, wait_ms = take_one(keys[2], per_minute, now_ms(args[5])) end
    if wait_ms then return {WORDS.refused, '0', string.format('%.0f', wait_ms)} end
    redis.call('HSET', keys[1], 'fp', args[1], 'id', args[2], 'pool', args[3], 'state', 'pending')
    redis.call('EXPIRE', keys[1], args[4])
    h = {args[1], args[2], args[3], 'new'}
  end
  return {WORDS.applied, h[2], h[3], h[4], left and whole(left) or ''}
end
register('claim_key', claim_key, {})
