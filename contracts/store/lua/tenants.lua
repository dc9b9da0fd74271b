-- tenants: whose jobs these are
-- KEYS  job hashes
-- ARGV  1 field of the tenant
-- Reply the tenant of each, '' of one that is gone
-- Events none
-- Guard none
local function tenants(keys, args)
  local found = {}
  for i, key in ipairs(keys) do found[i] = job_fields(key, args[1])[1] or '' end
  return found
end
register('tenants', tenants, {'no-writes'})
