-- Takes what has expired out of the index.
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
return redis.call('ZREM', KEYS[2], sub(KEYS[1], -64))
