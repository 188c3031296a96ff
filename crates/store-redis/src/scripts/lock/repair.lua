-- owner, ttl. 1 if it was still the owner's, 2 if it was nobody's and is the owner's again (the node restarted empty), else 0.
local value = redis.call('GET', KEYS[1])
if not value then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 2
end
if string.sub(value, 1, 32) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
