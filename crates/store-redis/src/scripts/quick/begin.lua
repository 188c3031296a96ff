-- owner, payload with label, lease, retention, both at most in milliseconds, takeover (nothing, A, or the fence that was seen)
--
-- What nearly every begin comes to, before anything else is set up: a server has one thread, and pays for every call, for every
-- function that a script defines, for every argument, and for every list in a reply. See record.lua for the layout.
local call, sub = redis.call, string.sub
local value = call('GET', KEYS[1])

-- A replay: Redis itself has removed what is no longer kept, up to a millisecond.
if value and sub(value, 1, 3) == 'O\1C' then return value end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- A first attempt: its fence is its time.
if not value then
  local moment = struct.pack('>I8', now)
  local numbers = struct.pack('>I8I8I8', now + ARGV[3], 0, now + ARGV[4])
  call('ZADD', KEYS[2], time[1] .. sub('00000' .. time[2], -6), sub(KEYS[1], -64))
  call('PSETEX', KEYS[1], ARGV[5], 'O\1RN0' .. ARGV[1] .. moment .. '\0\0\0\1' .. moment .. numbers .. ARGV[2])
  return now
end
