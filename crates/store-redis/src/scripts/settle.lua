-- Goes on from quick/settle.lua: whatever else there may be.
local bad = flaw(value)
if bad then return bad end
if not value or now >= expires_at(value) or not belongs_to(value, ARGV[1]) then return 0 end

local answer_at = 135 + unpack('>I4', value, 131)
if sub(value, 3, 3) ~= 'R' then
  if sub(value, 3, 3) ~= ARGV[2] or sub(value, answer_at) ~= ARGV[3] then return 0 end
  -- The same again is applied, and not kept longer for it. But it is written: since 7.2 a `WAIT` is about what its connection
  -- wrote, so that after nothing it would count replicas that do not have the record.
  redis.call('PEXPIREAT', KEYS[1], removal(value))
  return 1
end
wake(KEYS[1], value)
if ARGV[2] ~= 'U' then redis.call('ZREM', KEYS[2], sub(KEYS[1], -64)) end
-- What is not kept at all would still be replayed within the same millisecond.
if ARGV[5] == '0' then
  redis.call('UNLINK', KEYS[1])
  return 1
end
rewrite(KEYS[1], 'O\1' .. ARGV[2] .. sub(value, 4, 4) .. '0' .. sub(value, 6, 49)
  .. pack('>I8I8', now, now + ARGV[4]) .. sub(value, 66, answer_at - 1) .. ARGV[3])
return 1
