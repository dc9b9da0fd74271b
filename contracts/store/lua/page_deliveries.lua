-- page_deliveries: a tenant's deliveries, newest job first, below a cursor, of all jobs or of those ids that begin alike
-- KEYS  1 prefix of deliveries
-- ARGV  1 tenant   2 cursor id (exclusive) or ''   3 most   4 how ids begin, or ''   5.. fields
-- Reply {id, next due ms or nothing, value of each field, ...}
-- Events none
-- Guard none
local function page_deliveries(keys, args)
  local at, out = keys[1], {}
  local high = args[2] ~= '' and '(' .. args[2] or args[4] ~= '' and '[' .. args[4] .. '~' or '+'
  local low = args[4] ~= '' and '[' .. args[4] or '-'
  for _, id in ipairs(redis.call('ZREVRANGEBYLEX', at .. 'deliveries:' .. args[1], high, low, 'LIMIT', 0, args[3])) do
    local h = job_fields(at .. 'delivery:' .. id, 'endpoint', unpack(args, 5))
    local due = h[1] and redis.call('ZSCORE', at .. 'due:' .. h[1], id)
    out[#out + 1] = {id, due or false, unpack(h, 2, #args - 3)}
  end
  return out
end
register('page_deliveries', page_deliveries, {'no-writes'})
