-- tenants: whose jobs these are
-- KEYS  job hashes
-- ARGV  field of the tenant, or several fields
-- Reply for each job these fields, '' of one that is gone
-- Events none
-- Guard none
local function tenants(keys, args)
  local found = {}
  for _, key in ipairs(keys) do
    local fields = job_fields(key, unpack(args))
    for i = 1, #args do found[#found + 1] = fields[i] or '' end
  end
  return found
end
register('tenants', tenants, {'no-writes'})
