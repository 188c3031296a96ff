-- Goes on from quick/begin.lua: a record that is not completed.
local bad = flaw(value)
if bad then return bad end

local fence, attempts, created, over = math.max(now, unpack('>I8', value, 22) + 1), 1, now, 'N'

if now < expires_at(value) then
  if is_running(value, now) and belongs_to(value, ARGV[1]) then
    -- A repeat, because the reply was lost: the same answer, and the lease counts anew.
    rewrite(KEYS[1], sub(value, 1, 41) .. pack('>I8', now + ARGV[3]) .. sub(value, 50))
    local fence, attempts = unpack('>I8I4', value, 22)
    return { fence, attempts, sub(value, 4, 4) }
  end
  local state, takeover = sub(value, 3, 3), ARGV[6]
  local takeable = not is_running(value, now)
    and not belongs_to(value, ARGV[1]) and sub(value, 66, 98) == sub(ARGV[2], 1, 33)
  if takeable and not takeover then takeable = state == 'F' end
  if takeable and takeover and takeover ~= 'A' then takeable = sub(value, 22, 29) == takeover end
  if not takeable then return { now, value } end
  attempts = math.min(unpack('>I4', value, 30) + 1, 4294967295)
  created = unpack('>I8', value, 34)
  over = state == 'F' and 'R' or 'L'
end

local numbers = pack('>I8I4I8I8I8I8', fence, attempts, created, now + ARGV[3], 0, now + ARGV[4])
wake(KEYS[1], value)
write(KEYS[1], KEYS[2], 'O\1R' .. over .. '0' .. ARGV[1] .. numbers .. ARGV[2])
return { fence, attempts, over }
