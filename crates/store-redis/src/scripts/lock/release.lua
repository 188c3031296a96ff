-- owner. 1 if it was the owner's and is free now, 0 if it was nobody's, 2 if it is somebody else's.
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then return redis.call('DEL', KEYS[1]) end
if not value then return 0 end
if string.sub(value, 1, 32) ~= ARGV[1] then return 2 end
redis.call('DEL', KEYS[1])
-- Only if somebody waits. A refusal (by an ACL, say) does not matter: who waits also looks by itself.
-- The key is prefix, `lock:`, the tag in braces, and the name: see names.rs for both.
local at = string.find(KEYS[1], '{', 1, true)
local tag = string.sub(KEYS[1], at + 1, at + 2)
redis.pcall('PUBLISH', string.sub(KEYS[1], 1, at - 6) .. 'changed', string.rep(tag, 32))
return 1
