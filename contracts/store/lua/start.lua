-- start: an offer became an attempt of this worker; from here on author code may run
-- KEYS  1 log stream   2 usage hash   3 job hash   4 body string   5 worker hash   6 work stream
-- ARGV  1 now_ms or 0   2 worker   3 offer   4 write (prelude): job.started, guarded by the fence before it
-- Reply APPLIED position sequence body | REFUSED | FENCED | CONFLICT | GONE
-- Events job.started
-- Guard the offer stands and the fence is the one it was made at; the start accepted before is answered again
local function start_one(keys, log, usage, job, body, worker_key, now, worker, offer, w)
  local h = job_fields(keys[job], 'of', 'w', 'n', 'p')
  if h[1] == offer and h[2] == worker then
    return {WORDS.applied, h[4], h[3], body_of(keys[body])}
  end
  local word = refuses(keys, w)
  if word then return {word, h[3] or '0', h[4] or ''} end
  local p, n = commit(keys, keys[log], keys[usage], id_for(now), w)
  redis.call('HSET', keys[job], 'k', 0)
  redis.call('HDEL', keys[job], 'kw', 'kp')
  return {WORDS.applied, p, n, body_of(keys[body])}
end

local function start(keys, args)
  return start_one(keys, 1, 2, 3, 4, 5, args[1], args[2], args[3], cjson.decode(args[4]))
end
register('start', start, {'allow-oom'})
