-- seen fence, whether it was settled (0 1), whether to be woken (0 1)
-- Says whether the record is still as it was seen, and notes in it that somebody waits: only then do others publish.
local value, bad = read(KEYS[1])
if bad then return bad end
if not value or sub(value, 22, 29) ~= ARGV[1] then return 0 end
if (sub(value, 3, 3) ~= 'R') ~= (ARGV[2] == '1') then return 0 end
if ARGV[3] == '1' and sub(value, 5, 5) ~= '1' then redis.call('SETRANGE', KEYS[1], 4, '1') end
return 1
