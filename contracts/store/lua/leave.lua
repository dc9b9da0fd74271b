-- leave: consumers that hold nothing and are idle are gone from the group; names do not pile up
-- KEYS  1 log stream
-- ARGV  1 group   2 idle ms   3 a consumer that leaves now, or ''
-- Reply APPLIED count
-- Events none
-- Guard a consumer with pending entries stays: removing it would drop them in silence
local function leave(keys, args)
  local consumers, count = redis.pcall('XINFO', 'CONSUMERS', keys[1], args[1]), 0
  if consumers.err then return {WORDS.applied, 0} end
  for _, fields in ipairs(consumers) do
    local about = {}
    for i = 1, #fields, 2 do about[fields[i]] = fields[i + 1] end
    if about.pending == 0 and (about.name == args[3] or about.idle >= tonumber(args[2])) then
      redis.call('XGROUP', 'DELCONSUMER', keys[1], args[1], about.name)
      count = count + 1
    end
  end
  return {WORDS.applied, count}
end
register('leave', leave, {'allow-oom'})
