-- owner, payload, lease, retention, takeover (N A S), seen fence, label
local owner, takeover = ARGV[1], ARGV[5]
local now = micros()
local value, bad = read(KEYS[1])
if bad then return bad end

local fence, attempts, created, over = now, 1, now, 'N'
if value then fence = math.max(now, unpack('>I8', value, 22) + 1) end

if value and now < expires_at(value) then
  if is_running(value, now) and sub(value, 6, 21) == owner then
    -- A repeat, because the reply was lost: the same answer, and the lease counts anew.
    rewrite(KEYS[1], sub(value, 1, 41) .. pack('>I8', now + ARGV[3]) .. sub(value, 50))
    local fence, attempts = unpack('>I8I4', value, 22)
    return { 1, fence, attempts, sub(value, 4, 4) }
  end
  local state = sub(value, 3, 3)
  local takeable = state ~= 'C' and not is_running(value, now)
    and sub(value, 6, 21) ~= owner and sub(value, 66, 98) == ARGV[2]
  if takeable and takeover == 'N' then takeable = state == 'F' end
  if takeable and takeover == 'S' then takeable = sub(value, 22, 29) == ARGV[6] end
  if not takeable then return { 0, now, value } end
  attempts = math.min(unpack('>I4', value, 30) + 1, 4294967295)
  created = unpack('>I8', value, 34)
  over = state == 'F' and 'R' or 'L'
end

local numbers = pack('>I8I4I8I8I8I8', fence, attempts, created, now + ARGV[3], 0, now + ARGV[4])
if value then wake(KEYS[1], value) end
write(KEYS[1], KEYS[2], 'O\1R' .. over .. '0' .. owner .. numbers .. ARGV[2] .. ARGV[7])
return { 1, fence, attempts, over }
