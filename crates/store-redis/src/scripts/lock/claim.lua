-- owner, ttl. As acquire, without a fence: for one node of several.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  if string.sub(redis.call('GET', KEYS[1]), 1, 32) ~= ARGV[1] then return { redis.call('PTTL', KEYS[1]) } end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
