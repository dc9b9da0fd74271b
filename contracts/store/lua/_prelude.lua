-- Shared by all verbs; not a verb. A write is a JSON object `w` that Python has decided on:
--   j  subject            k  KEYS index of the job hash (absent: the events belong to no job)
--   g  guards             ev list of {type, data, hooked 0/1, {field, value, ...}}
--   close / open          KEYS index of the tenant's list: the run ended / a new run began
--   letter / unletter     KEYS index of the dead letters: the job is one from now on / is none any more
--   once                  with close: KEYS index of the hash in which jobs in flight hold their dedup keys
--   hset list of {KEYS index, field, value, ...}: of a worker; d<slot> is its deck, see deck_after
--   add  list of {KEYS index, field, value, ...}: work entries
--   del list of KEYS indexes to delete              ack {KEYS index, entry, ...}: work entries done with
--   erase {KEYS index of the body, KEYS index of the hash of erasures, what is left to remove}: the body goes
--   leaves  KEYS index of the set of workers that the subject leaves
-- Every check comes before the first write. Values: '' removes a field, '@' is the entry's ms, '@+n' n ms later.
local WORDS = {applied = 'APPLIED', fenced = 'FENCED', conflict = 'CONFLICT', gone = 'GONE', refused = 'REFUSED'}

local function now_ms(arg)
  if arg ~= '0' then return tonumber(arg) end
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function id_for(arg)
  if arg == '0' then return '*' end
  return arg .. '-*'
end

-- Fields of a job's hash. A key that a foreign hand made something else of is a job that is gone: the error would end the
-- whole turn or heartbeat, time after time, and with it the work on all other jobs.
local function job_fields(key, ...)
  local h = redis.pcall('HMGET', key, ...)
  return h.err and {} or h
end

local function body_of(key)
  local body = redis.pcall('GET', key)
  return type(body) == 'string' and body or ''
end

-- Why guards `g` forbid a write to the job, or nil. s: one of these states, n: sequence, f: fence, r: run,
-- o: this offer stands, w: held by this worker, c: no cancel was requested, no: no offer stands at all
local function refuses_job(key, g)
  local h = job_fields(key, 's', 'n', 'f', 'r', 'w', 'cr')
  if not h[1] then return WORDS.gone end
  if g.f and tonumber(h[3]) ~= g.f then return WORDS.fenced end
  if g.w and h[5] ~= g.w then return WORDS.fenced end
  if g.o and redis.call('HEXISTS', key, 'o:' .. g.o) == 0 then return WORDS.refused end
  if g.n and tonumber(h[2]) ~= g.n then return WORDS.conflict end
  if g.r and tonumber(h[4]) ~= g.r then return WORDS.conflict end
  if g.c and h[6] then return WORDS.conflict end
  if g.s then
    local fits = false
    for _, s in ipairs(g.s) do fits = fits or s == h[1] end
    if not fits then return WORDS.conflict end
  end
  return nil
end

local function begins(text, head)
  return string.sub(text, 1, #head) == head
end

-- Why guards on a worker forbid a write, or nil. k: KEYS index of its hash, open: takes offers,
-- deck: this slot's deck is empty, batch: or holds this batch, hb: its heartbeat counter is still this
local function refuses_worker(keys, g)
  local h = redis.call('HMGET', keys[g.k], 'state', 'b', 'd' .. (g.deck or ''))
  if not h[1] then
    if g.hb then return nil end
    return WORDS.gone
  end
  if g.open and h[1] ~= 'open' then return WORDS.refused end
  if g.hb and tonumber(h[2]) ~= g.hb then return WORDS.conflict end
  if g.deck and h[3] and not (g.batch and begins(h[3], 'batch ' .. g.batch .. ' ')) then return WORDS.refused end
  return nil
end

-- The word that refuses a write and whose guard it was, job or worker; or nil
local function refuses(keys, w)
  if w.k then  -- also without guards: a write must not bring back a job that is gone
    local word = refuses_job(keys[w.k], w.g or {})
    if word then return word, 'job' end
  end
  if w.gw then return refuses_worker(keys, w.gw), 'worker' end
  return nil
end

-- One HDEL and one HSET however many fields change: a call of the server costs more than the change itself.
-- `sets` are fields and values to set along with them.
local function set_fields(key, pairs_list, ms, sets)
  local gone = {}
  for i = 1, #pairs_list, 2 do
    local field, value = pairs_list[i], pairs_list[i + 1]
    if field == 'o:*' then
      for _, name in ipairs(redis.call('HKEYS', key)) do
        if string.sub(name, 1, 2) == 'o:' then gone[#gone + 1] = name end
      end
    elseif value == '' then
      gone[#gone + 1] = field
    else
      if string.sub(value, 1, 1) == '@' then
        value = string.format('%.0f', ms + (tonumber(string.sub(value, 3)) or 0))
      end
      sets[#sets + 1], sets[#sets + 2] = field, value
    end
  end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  if #sets > 0 then redis.call('HSET', key, unpack(sets)) end
end

-- Append the events of a write to `log`; returns the position of the last one (nil without events) and the
-- job's sequence. Of a job whose `h` is '*' every event is marked: its subscription changed since its writers read it.
local function append(keys, log, id, w)
  local key, n, f, p, hooked = w.k and keys[w.k], 0, 0, false, false
  if key then
    local h = redis.call('HMGET', key, 'n', 'f', 'p', 'h')
    n, f, p, hooked = tonumber(h[1] or 0), tonumber(h[2] or 0), h[3], h[4]
  end
  for _, event in ipairs(w.ev) do
    local entry = {'t', event[1], 'j', w.j}
    if key then
      n = n + 1
      for i = 1, #event[4], 2 do
        if event[4][i] == 'f' then f = tonumber(event[4][i + 1]) end
        if event[4][i] == 'h' then hooked = event[4][i + 1] end
      end
      entry[5], entry[6], entry[7], entry[8] = 'n', n, 'f', f
      if p then entry[9], entry[10] = 'p', p end
    end
    if event[3] == 1 or hooked == '*' then entry[#entry + 1], entry[#entry + 2] = 'h', '1' end
    entry[#entry + 1], entry[#entry + 2] = 'd', event[2]
    p = redis.call('XADD', log, 'NOMKSTREAM', id, unpack(entry))
    if key then
      set_fields(key, event[4], tonumber(string.match(p, '^%d+')), {'n', n, 'p', p})
    end
  end
  return #w.ev > 0 and p or nil, n
end

-- The counters that admission reads: open jobs and their bytes, per pool and per tenant.
local function count(usage, key, sign)
  local h = redis.call('HMGET', key, 't', 'u')
  local bytes = sign * tonumber(h[2] or 0)
  redis.call('HINCRBY', usage, 'jobs', sign)
  redis.call('HINCRBY', usage, 'bytes', bytes)
  local left = redis.call('HINCRBY', usage, 'b:' .. (h[1] or ''), bytes)
  if left == 0 then redis.call('HDEL', usage, 'b:' .. (h[1] or '')) end
end

-- The first admission limit that one more open job of the tenant with so many bytes goes beyond, and what would be used
-- of it; or nil. limits: tenant jobs, tenant bytes, pool jobs, pool bytes
local function over_limit(usage, list, tenant, bytes, limits)
  local used = redis.call('HMGET', usage, 'jobs', 'bytes', 'b:' .. tenant)
  local counts = {
    {'tenant_jobs', redis.call('ZCOUNT', list, 0, 0) + 1},
    {'tenant_bytes', tonumber(used[3] or 0) + bytes},
    {'pool_jobs', tonumber(used[1] or 0) + 1},
    {'pool_bytes', tonumber(used[2] or 0) + bytes},
  }
  for i, c in ipairs(counts) do
    if c[2] > tonumber(limits[i]) then return c[1], string.format('%.0f', c[2]) end
  end
  return nil
end

-- What a deck holds after a change: 'job offer' lies there alone, '+batch <id> job offer' joins the others of its
-- batch, '-job offer' leaves; '' is an empty deck. Only what leaves by its own name frees a deck.
local function deck_after(before, change)
  local sign, offer = string.sub(change, 1, 1), string.sub(change, 2)
  if sign == '+' then return before and before .. string.match(offer, '^batch %S+( .*)$') or offer end
  if sign ~= '-' or not before or before == offer then return sign == '-' and '' or change end
  local from, to = string.find(before .. ' ', ' ' .. offer .. ' ', 1, true)
  if not from then return before end
  local left = string.sub(before, 1, from - 1) .. string.sub(before, to)
  return string.find(left, '^batch %S+$') and '' or left
end

local function change_worker(key, change)
  -- a worker that is gone must not come back as an empty hash
  if redis.call('EXISTS', key) == 0 then return end
  local fields = {unpack(change, 2)}
  for i = 1, #fields, 2 do
    if string.find(fields[i], '^d%d+$') then
      fields[i + 1] = deck_after(redis.call('HGET', key, fields[i]), fields[i + 1])
    end
  end
  set_fields(key, fields, 0, {})
end

-- A job that has ended does not hold its dedup key any more; one that runs again does not take it back.
local function let_go(key, held, id)
  local field = held and redis.call('HGET', key, 'dd')
  if field and redis.call('HGET', held, field) == id then redis.call('HDEL', held, field) end
end

local function commit(keys, log, usage, id, w)
  local p, n = append(keys, log, id, w)
  if w.close then
    count(usage, keys[w.k], -1)
    redis.call('ZADD', keys[w.close], 1, w.j)
    let_go(keys[w.k], w.once and keys[w.once], w.j)
  elseif w.open then
    count(usage, keys[w.k], 1)
    redis.call('ZADD', keys[w.open], 0, w.j)
  end
  if w.letter then redis.call('ZADD', keys[w.letter], string.match(p, '^%d+'), w.j) end
  if w.unletter then redis.call('ZREM', keys[w.unletter], w.j) end
  for _, change in ipairs(w.hset or {}) do change_worker(keys[change[1]], change) end
  for _, work in ipairs(w.add or {}) do
    local key = keys[work[1]]
    if not redis.call('XADD', key, 'NOMKSTREAM', '*', unpack(work, 2)) and w.gw and w.gw.open then
      -- the worker is there, its stream was lost: an offer nobody could read would hold the job for ever
      redis.call('XGROUP', 'CREATE', key, 'gpu', '0', 'MKSTREAM')
      redis.call('XADD', key, '*', unpack(work, 2))
    end
  end
  for i = 2, #(w.ack or {}) do
    redis.call('XACK', keys[w.ack[1]], 'gpu', w.ack[i])
    redis.call('XDEL', keys[w.ack[1]], w.ack[i])
  end
  for _, index in ipairs(w.del or {}) do redis.call('DEL', keys[index]) end
  if w.leaves then redis.call('SREM', keys[w.leaves], w.j) end
  if w.erase then
    redis.call('DEL', keys[w.erase[1]])
    redis.call('HSET', keys[w.erase[2]], w.j, w.erase[3])
  end
  return p or '', n
end

-- Writes without a fence carry an id; the hash keeps the last four with their positions.
local function position_of_op(key, op)
  for _, kept in ipairs(job_fields(key, 'e0', 'e1', 'e2', 'e3')) do
    if kept and string.sub(kept, 1, #op + 1) == op .. ' ' then return string.sub(kept, #op + 2) end
  end
  return nil
end

local function keep_op(key, op, p)
  local ring = tonumber(redis.call('HGET', key, 'ei') or 0)
  redis.call('HSET', key, 'e' .. ring, op .. ' ' .. p, 'ei', (ring + 1) % 4)
end

local function last_of(key)
  local h = job_fields(key, 'n', 'p')
  return h[1] or '0', h[2] or ''
end
