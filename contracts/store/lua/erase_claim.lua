-- erase_claim: the claim of an erased job's Idempotency-Key says nothing of the request any more, and still names the job
-- KEYS  1 claim hash
-- ARGV  1 id
-- Reply APPLIED | CONFLICT
-- Events none
-- Guard the claim holds this id
local function erase_claim(keys, args)
  if redis.call('HGET', keys[1], 'id') ~= args[1] then return {WORDS.conflict} end
  redis.call('HSET', keys[1], 'fp', '')
  return {WORDS.applied}
end
register('erase_claim', erase_claim, {'allow-oom'})
