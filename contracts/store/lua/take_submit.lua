-- take_submit: a tenant submits once more, within its rate; also used by claim_key and take_upload
-- KEYS  1 submits hash
-- ARGV  1 now_ms or 0   2 submits per minute   3 '1' to look only
-- Reply APPLIED left | REFUSED left ms-until-the-next
-- Events none
-- Guard a bucket of two minutes' worth, filled by the server's time; a refusal takes nothing
local SUBMIT = 60000  -- parts: as many as there are ms in a minute, so that the bucket holds whole numbers only
local MINUTES = 2

-- What is in a bucket now, which has this room and is filled with so many parts in each ms.
local function bucket_left(key, room, per_ms, now)
  local h = redis.call('HMGET', key, 'n', 'at')
  if not h[1] then return room end
  return math.min(room, tonumber(h[1]) + math.max(0, now - tonumber(h[2])) * per_ms)
end

-- Take parts out of a bucket; returns what is left and, when it was too many, how long to wait.
local function take_parts(key, room, per_ms, now, parts)
  local left = bucket_left(key, room, per_ms, now) - parts
  if left < 0 then return 0, math.ceil(-left / per_ms) end
  redis.call('HSET', key, 'n', string.format('%.0f', left), 'at', string.format('%.0f', now))
  redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(room / per_ms)))  -- full again, as one that is not there
  return left, nil
end

local function parts_left(key, per_minute, now)
  return bucket_left(key, MINUTES * per_minute * SUBMIT, per_minute, now)
end

local function take_one(key, per_minute, now)
  return take_parts(key, MINUTES * per_minute * SUBMIT, per_minute, now, SUBMIT)
end

local function whole(parts)
  return string.format('%.0f', math.floor(parts / SUBMIT))
end

local function take_submit(keys, args)
  local now, per_minute = now_ms(args[1]), tonumber(args[2])
  if args[3] == '1' then return {WORDS.applied, whole(parts_left(keys[1], per_minute, now))} end
  local left, wait_ms = take_one(keys[1], per_minute, now)
  if wait_ms then return {WORDS.refused, '0', string.format('%.0f', wait_ms)} end
  return {WORDS.applied, whole(left)}
end
register('take_submit', take_submit, {})
