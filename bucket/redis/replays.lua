-- Notes that a name was used. KEYS[1] is a set of names: its floor, and of each name 16 bytes and when it was made, times in seconds, four bytes each.
-- ARGV[1] has, in doubles: the time in us, or 0 for the server's own; when the name was made, in seconds; after how many ms the set may be forgotten; and
-- behind them the name.
--
-- A full set gives up the name that was made first, and keeps that time as its floor: a name that was made no later may be the one that was given up, and
-- counts as used. Names that are made ahead of the clock have half of the set at most, as they would leave a floor that is ahead, too. What is no such set
-- is somebody else's, and is dropped.
--
-- Answers the time, and 1 if the name was not used before.
local decode, encode, call, sub = struct.unpack, struct.pack, redis.call, string.sub
local ways, size = 8, 20

local now, made, keep, rest = decode('<ddd', ARGV[1])
local name, timed = sub(ARGV[1], rest), now == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
local second = math.floor(now / 1000000)

local set = redis.pcall('GET', KEYS[1])
if type(set) == 'table' then
  if not string.find(set.err, 'WRONGTYPE', 1, true) then return set end
  set = false
end
if not set or #set < 4 or #set > 4 + ways * size or (#set - 4) % size ~= 0 then set = encode('<I4', 0) end

local floor, first, oldest, ahead = decode('<I4', set), 0, math.huge, 0
for at = 5, #set, size do
  if sub(set, at, at + 15) == name then return {now, 0} end
  local when = decode('<I4', set, at + 16)
  if when < oldest then first, oldest = at, when end
  if when > second then ahead = ahead + 1 end
end
if made <= floor or made > second and ahead >= ways / 2 then return {now, 0} end
if #set == 4 + ways * size then
  floor = math.max(floor, oldest)
  set = sub(set, 1, first - 1) .. sub(set, first + size)
end
set = encode('<I4', floor) .. sub(set, 5) .. name .. encode('<I4', made)
if timed then call('SET', KEYS[1], set, 'PX', string.format('%d', keep)) else call('SET', KEYS[1], set) end
return {now, 1}
