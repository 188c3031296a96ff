-- owner, ttl. The fence when granted, else a list of the milliseconds that are left.
local call = redis.call
if not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  -- A repeat, because the reply was lost, or somebody else's.
  if string.sub(call('GET', KEYS[1]), 1, 32) ~= ARGV[1] then return { call('PTTL', KEYS[1]) } end
  call('PEXPIRE', KEYS[1], ARGV[2])
end
-- As text: for numbers, the server has a slow way to write them.
local time = call('TIME')
local fence = time[1] .. string.sub('00000' .. time[2], -6)
-- Nearly always the time is later than the last fence, so that one call does it.
local last = call('SET', KEYS[2], fence, 'GET')
if last and last - fence >= 0 then
  fence = string.format('%.0f', last + 1)
  call('SET', KEYS[2], fence)
end
return fence
