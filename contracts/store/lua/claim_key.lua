-- claim_key: an Idempotency-Key of a tenant belongs to one request and one minted id
-- KEYS  1 claim hash
-- ARGV  1 fingerprint   2 minted id   3 pool   4 time to live s
-- Reply APPLIED id pool pending | CONFLICT (other request) | APPLIED kept-id kept-pool state
-- Events none
-- Guard a key that is taken keeps its id
local function claim_key(keys, args)
  local h = redis.call('HMGET', keys[1], 'fp', 'id', 'pool', 'state')
  if not h[1] then
    redis.call('HSET', keys[1], 'fp', args[1], 'id', args[2], 'pool', args[3], 'state', 'pending')
    redis.call('EXPIRE', keys[1], args[4])
    return {WORDS.applied, args[2], args[3], 'new'}
  end
  if h[1] ~= args[1] or h[3] ~= args[3] then return {WORDS.conflict, h[2], h[3]} end
  return {WORDS.applied, h[2], h[3], h[4]}
end
register('claim_key', claim_key, {})
