-- emit: what the owner of an attempt writes: progress, milestones, its end
-- KEYS  1 log stream   2 usage hash   3 job hash   4 body string   5 tenant's list zset   6 worker hash   7 work stream
-- ARGV  1 now_ms or 0   2 worker   3 fence   4 k   5 write (prelude)   6 line for the body or ''
-- Reply APPLIED position | FENCED | CONFLICT | REFUSED | GONE
-- Events as given; job.event_rejected at most once per fence when a former owner writes
-- Guard fence and owner; k counts from 1 without gaps, each answer uses its k up and is given again for it
local function rejected(keys, now, job, fence, w)
  local h = redis.call('HMGET', keys[3], 'rj', 'f')
  if (h[1] and tonumber(h[1]) >= fence) or fence > tonumber(h[2]) then return end
  local data = cjson.encode({offendingType = w.ev[1] and w.ev[1][1] or 'none', why = 'fenced'})
  append(keys, keys[1], id_for(now), {j = job, k = 3, ev = {{'job.event_rejected', data, 0, {'rj', tostring(fence)}}}})
end

local function emit_one(keys, now, worker, fence, k, w, line)
  local h = job_fields(keys[3], 'f', 'w', 'k', 'kw', 'kp')
  if not h[1] then return {WORDS.gone} end
  fence, k = tonumber(fence), tonumber(k)
  if tonumber(h[1]) == fence and k == tonumber(h[3] or 0) and h[4] then return {h[4], h[5] or ''} end
  if tonumber(h[1]) ~= fence or h[2] ~= worker then
    rejected(keys, now, w.j, fence, w)
    return {WORDS.fenced}
  end
  if k ~= tonumber(h[3] or 0) + 1 then return {WORDS.refused} end
  w.k = 3
  local word, p = refuses(keys, w), nil
  if not word then
    if line ~= '' then redis.call('APPEND', keys[4], line) end
    p = commit(keys, keys[1], keys[2], id_for(now), w)
  end
  redis.call('HSET', keys[3], 'k', k, 'kw', word or WORDS.applied, 'kp', p or '')
  return {word or WORDS.applied, p or ''}
end

local function emit(keys, args)
  return emit_one(keys, args[1], args[2], args[3], args[4], cjson.decode(args[5]), args[6])
end
register('emit', emit, {'allow-oom'})
