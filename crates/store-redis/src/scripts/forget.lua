-- seen fence
local now = micros()
local value, bad = read(KEYS[1])
if bad then return bad end
if not value or sub(value, 22, 29) ~= ARGV[1] or is_running(value, now) or now >= expires_at(value) then return 0 end
wake(KEYS[1], value)
redis.call('ZREM', KEYS[2], sub(KEYS[1], -64))
redis.call('UNLINK', KEYS[1])
return 1
