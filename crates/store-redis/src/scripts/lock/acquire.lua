-- owner, ttl. The fence when granted, else a list of the milliseconds that are left.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- A repeat, because the reply was lost, or somebody else's.
  if string.sub(redis.call('GET', KEYS[1]), 1, 32) ~= ARGV[1] then return { redis.call('PTTL', KEYS[1]) } end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local time = redis.call('TIME')
local fence = time[1] * 1000000 + time[2]
local last = redis.call('GET', KEYS[2])
if last and last + 1 > fence then fence = last + 1 end
redis.call('SET', KEYS[2], string.format('%.0f', fence))
return fence
