-- note_planned: what follows from a topic's records is stored up to these; the log's group `notifier` moves after them
-- KEYS  1 mirror hash   2 log stream   3 meta hash
-- ARGV  1 topic   2 JSON {partition: last position of this pool in it that is planned}
-- Reply APPLIED position (of the group) | REFUSED (the mirror writes to another topic, or there is none)
-- Events none
-- Guard the group never moves back, nor beyond what is in the topic; a partition's position only rises
local function note_planned(keys, args)
  if redis.call('HGET', keys[1], 'topic') ~= args[1] then return {WORDS.refused} end
  for partition, position in pairs(cjson.decode(args[2])) do
    local field = 'planned:' .. partition
    if before(redis.call('HGET', keys[1], field) or '0-0', position) then redis.call('HSET', keys[1], field, position) end
  end
  -- All that is in the topic is planned up to the lowest partition that has more to come.
  local upto, h = redis.call('HGET', keys[3], 'cursor:mirror') or '0-0', redis.call('HGETALL', keys[1])
  local fields = {}
  for i = 1, #h, 2 do fields[h[i]] = h[i + 1] end
  for field, sent in pairs(fields) do
    local partition = string.match(field, '^sent:(%d+)$')
    local planned = partition and (fields['planned:' .. partition] or '0-0')
    if planned and before(planned, sent) and before(planned, upto) then upto = planned end
  end
  local group = group_of(keys[2], 'notifier')
  local at = group and group['last-delivered-id'] or redis.call('HGET', keys[3], 'cursor:notifier') or '0-0'
  if before(upto, at) then upto = at end
  stand(keys[2], 'notifier', upto)
  redis.call('HSET', keys[3], 'cursor:notifier', upto)
  -- what a consumer held when it still read the log itself
  for _, pending in ipairs(redis.call('XPENDING', keys[2], 'notifier', '-', upto, 1000)) do
    redis.call('XACK', keys[2], 'notifier', pending[1])
  end
  return {WORDS.applied, upto}
end
register('note_planned', note_planned, {'allow-oom'})
