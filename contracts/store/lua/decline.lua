-- decline: a worker gives back an offer it has not started
-- KEYS  1 log stream   2 usage hash   3 job hash   4 worker hash   5 work stream
-- ARGV  1 now_ms or 0   2 write (prelude): job.unassigned, guarded by the offer
-- Reply APPLIED position | REFUSED (the offer is gone already) | GONE
-- Events job.unassigned
-- Guard the offer stands
local function decline(keys, args)
  local w = cjson.decode(args[2])
  local word = refuses(keys, w)
  if word then return {word} end
  local p = commit(keys, keys[1], keys[2], id_for(args[1]), w)
  return {WORDS.applied, p}
end
register('decline', decline, {'allow-oom'})
