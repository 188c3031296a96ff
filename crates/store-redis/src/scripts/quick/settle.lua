-- owner with fence if that is known, verdict (C F U), answer, retention, the same in milliseconds
--
-- What nearly every settlement comes to, as in quick/begin.lua: a first attempt under its lease is completed, and nobody waits.
local call, sub = redis.call, string.sub
local value, time = call('GET', KEYS[1]), call('TIME')
local now = time[1] * 1000000 + time[2]
if value and #value > 133 and ARGV[2] == 'C' and ARGV[5] ~= '0' and sub(value, 1, 5) == 'O\1RN0'
  and sub(value, 6, 29) == ARGV[1] and now < struct.unpack('>I8', value, 42) then
  local times = struct.pack('>I8I8', now, now + ARGV[4])
  call('ZREM', KEYS[2], sub(KEYS[1], -64))
  call('PSETEX', KEYS[1], ARGV[5], 'O\1CN0' .. sub(value, 6, 49) .. times .. sub(value, 66) .. ARGV[3])
  return 1
end
