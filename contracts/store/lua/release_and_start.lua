-- release_and_start: the slot goes from job A to job B in one call
-- KEYS  1-7 as emit, for A   8 B's job hash   9 B's body string
-- ARGV  1-6 as emit, for A   7 B's offer   8 write (prelude): B's job.started
-- Reply {A's reply as emit}, {B's reply as start}
-- Events A's job.device_released, B's job.started
-- Guard A's by its (fence, k), B's by its offer; neither depends on the other
local function release_and_start(keys, args)
  local a = emit_one(keys, args[1], args[2], args[3], args[4], cjson.decode(args[5]), args[6])
  local b = start_one(keys, 1, 2, 8, 9, 6, args[1], args[2], args[7], cjson.decode(args[8]))
  return {a, b}
end
register('release_and_start', release_and_start, {'allow-oom'})
