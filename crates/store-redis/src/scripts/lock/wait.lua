-- whether to be woken (0 1). 0 if it is free, else the milliseconds that are left; -1 if it never runs out.
-- Notes behind the owner that somebody waits: only then does the release publish.
local value = redis.call('GET', KEYS[1])
if not value then return 0 end
if ARGV[1] == '1' and #value == 32 then redis.call('SETRANGE', KEYS[1], 32, 'w') end
local left = redis.call('PTTL', KEYS[1])
return left == 0 and 1 or left
