-- survey: how the deliveries of a pool do: what metrics and the watchdog show
-- KEYS  1 prefix of deliveries
-- ARGV  1 now_ms or 0   2 ms after which what is due is overdue
-- Reply waiting, in flight, overdue, overdue of open circuits, open circuits, then outcome, attempts ever, ...
-- Events none
-- Guard none
local function survey(keys, args)
  local at, now = keys[1], now_ms(args[1])
  local waiting, flying, overdue, behind, open = 0, 0, 0, 0, 0
  for _, name in ipairs(redis.call('ZRANGE', at .. 'due', 0, -1)) do
    local late = redis.call('ZCOUNT', at .. 'due:' .. name, '-inf', as_ms(now - args[2]))
    waiting = waiting + redis.call('ZCARD', at .. 'due:' .. name)
    flying = flying + redis.call('ZCARD', at .. 'flight:' .. name)
    if redis.call('HEXISTS', at .. 'endpoint:' .. name, 'open') == 1 then
      open, behind = open + 1, behind + late
    else
      overdue = overdue + late
    end
  end
  return {waiting, flying, overdue, behind, open, redis.call('HGETALL', at .. 'outcomes')}
end
register('survey', survey, {'no-writes'})
