-- owner, channel, tag. 1 if it was the owner's and is free now, 0 if it was nobody's, 2 if it is somebody else's.
local value = redis.call('GET', KEYS[1])
if not value then return 0 end
if string.sub(value, 1, 32) ~= ARGV[1] then return 2 end
redis.call('DEL', KEYS[1])
-- Only if somebody waits. A refusal (by an ACL, say) does not matter: who waits also looks by itself.
if #value > 32 then redis.pcall('PUBLISH', ARGV[2], string.rep(ARGV[3], 32)) end
return 1
