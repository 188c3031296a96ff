-- owner with fence if that is known, lease
local now = micros()
local value, bad = read(KEYS[1])
if bad then return bad end
if not value or not belongs_to(value, ARGV[1]) or not is_running(value, now) then return 0 end
rewrite(KEYS[1], sub(value, 1, 41) .. pack('>I8', now + ARGV[2]) .. sub(value, 50))
return 1
