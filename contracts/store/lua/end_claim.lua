-- end_claim: a claim is done (with the job's last status seen), or dropped because its id was refused
-- KEYS  1 claim hash
-- ARGV  1 id   2 state, or '' to drop a pending claim   3 id that the claim names from now on, '' for the same
-- Reply APPLIED | CONFLICT
-- Events none
-- Guard the claim holds this id
local function end_claim(keys, args)
  local h = redis.call('HMGET', keys[1], 'id', 'state')
  if h[1] ~= args[1] then return {WORDS.conflict} end
  if args[2] ~= '' then
    redis.call('HSET', keys[1], 'state', args[2], 'id', args[3] ~= '' and args[3] or args[1])
  elseif h[2] == 'pending' then
    redis.call('DEL', keys[1])
  end
  return {WORDS.applied}
end
register('end_claim', end_claim, {'allow-oom'})
