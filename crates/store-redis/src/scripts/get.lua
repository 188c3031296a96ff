local value, bad = read(KEYS[1])
if bad then return bad end
return { micros(), value }
