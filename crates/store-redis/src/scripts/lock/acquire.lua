-- owner, ttl. The fence when granted, else a list of the milliseconds that are left.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- A repeat, because the reply was lost, or somebody else's.
  if string.sub(redis.call('GET', KEYS[1]), 1, 32) ~= ARGV[1] then return { redis.call('PTTL', KEYS[1]) } end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local time = redis.call('TIME')
local fence = time[1] * 1000000 + time[2]
-- Nearly always the time is later than the last fence, so that one call does it.
local last = redis.call('SET', KEYS[2], fence, 'GET')
if last and tonumber(last) >= fence then
  fence = last + 1
  redis.call('SET', KEYS[2], fence)
end
return fence
