-- owner, fence or nothing, lease
local now = micros()
local value, bad = read(KEYS[1])
if bad then return bad end
if not value or not belongs_to(value, ARGV[1], ARGV[2]) or not is_running(value, now) then return 0 end
rewrite(KEYS[1], sub(value, 1, 41) .. pack('>I8', now + ARGV[3]) .. sub(value, 50))
return 1
