-- What all scripts share: how a record is laid out (see stored.rs), and the server's time by which it is judged.
--
--  1 'O' 1 | 3 state R C F U | 4 over N R L | 5 waited for 0 1 | 6 owner | 22 fence | 30 attempts | 34 created
-- 42 lease until | 50 settled at | 58 expires | 66 payload | 99 key | 115 scope | 131 length of route | 135 route, answer
--
-- Numbers are big-endian; times are microseconds since 1970, which a Lua number holds exactly until the year 2255.
-- What is only compared stays bytes. A script writes its record at most once, and last: an error from it means that nothing
-- was done to the record. KEYS[2] is the index of its shard: the ids of what is not settled, by when it was created.
local sub, pack, unpack = string.sub, struct.pack, struct.unpack

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function flaw(value)
  if value and (#value < 134 or sub(value, 1, 2) ~= 'O\1' or #value < 134 + unpack('>I4', value, 131)) then
    return redis.error_reply('CORRUPT what is stored at this key is not a record of this version')
  end
end

local function read(key)
  local value = redis.call('GET', key)
  local bad = flaw(value)
  return not bad and value, bad
end

local function lease_until(value) return (unpack('>I8', value, 42)) end

local function is_running(value, now) return sub(value, 3, 3) == 'R' and now < lease_until(value) end

-- A live lease outlasts retention.
local function expires_at(value)
  local expires = unpack('>I8', value, 58)
  if sub(value, 3, 3) == 'R' then return math.max(expires, lease_until(value)) end
  return expires
end

-- Redis removes the record by itself, in the millisecond after it has expired; until then a completed one is replayed, and
-- another one counts as absent.
local function removal(value) return string.format('%.0f', math.floor(expires_at(value) / 1000) + 1) end

-- A new attempt: refused when memory is full.
local function write(key, index, value)
  redis.call('ZADD', index, string.format('%.0f', (unpack('>I8', value, 34))), sub(key, -64))
  redis.call('SET', key, value, 'PXAT', removal(value))
end

-- An attempt that there is already, also when memory is full: a script that has written something is not refused more.
local function rewrite(key, value)
  local at = removal(value)
  if redis.pcall('SET', key, value, 'PXAT', at).err then
    redis.call('PEXPIREAT', key, at)
    redis.call('SET', key, value, 'PXAT', at)
  end
end

-- The attempt is its owner, with its fence if that is known.
local function belongs_to(value, attempt) return sub(value, 6, 5 + #attempt) == attempt end

-- Only if somebody waits for this record. A refusal (by an ACL, say) does not matter: who waits also looks by itself.
-- The key is prefix, brace, shard, brace, 64 digits: see keys.rs for both names.
local function wake(key, value)
  if sub(value, 5, 5) == '1' then redis.pcall('PUBLISH', sub(key, 1, -69) .. 'changed', sub(key, -64)) end
end
