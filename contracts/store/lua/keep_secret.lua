-- keep_secret: a secret has a value, the first one that anybody gave it
-- KEYS  1 secret string
-- ARGV  1 value to keep if there is none
-- Reply the value that is kept
-- Events none
-- Guard a secret that is there
local function keep_secret(keys, args)
  redis.call('SET', keys[1], args[1], 'NX')
  return redis.call('GET', keys[1])
end
register('keep_secret', keep_secret, {'allow-oom'})
