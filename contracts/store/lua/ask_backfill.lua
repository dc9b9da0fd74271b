-- ask_backfill: an endpoint is to be sent what happened in a time
-- KEYS  1 backfills hash
-- ARGV  1 id   2 what is asked (JSON)   3 most at once
-- Reply APPLIED | CONFLICT too many
-- Events none (`webhook.redelivery_requested` says so before)
-- Guard one that is known stays as far as it is
local function ask_backfill(keys, args)
  if redis.call('HEXISTS', keys[1], args[1]) == 1 then return {WORDS.applied} end
  if redis.call('HLEN', keys[1]) >= tonumber(args[3]) then return {WORDS.conflict} end
  redis.call('HSET', keys[1], args[1], args[2])
  return {WORDS.applied}
end
register('ask_backfill', ask_backfill, {})
