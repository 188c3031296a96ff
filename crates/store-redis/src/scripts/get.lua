local value, bad = read(KEYS[1])
if bad then return bad end
-- Only the beginning of the answer, if that is enough.
if value and ARGV[1] then value = sub(value, 1, 134 + unpack('>I4', value, 131) + ARGV[1]) end
return { micros(), value }
