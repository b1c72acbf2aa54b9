-- take.lua for a single bucket that nobody watches or waits for, which most decisions name: without its tables and functions it costs the server
-- a fifth less (BenchmarkOneBucket). ARGV[1] has, in doubles: the time in us, or 0 for the server's own; 1 to charge, 0 to look; units wanted;
-- the time at which the limit took effect, or 0; drain, tick and capacity; and the bytes of the shape.
--
-- Answers the time, 1 or 0 if the units fit or not, debt and stamp. Or, if the bucket was left under another limit, the time, -1, 1 and the value.
local call, sub, floor = redis.call, string.sub, math.floor
local now, charge, units, since, drain, tick, capacity = struct.unpack('<ddddddd', ARGV[1])
local timed = now == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local held, shape = call('GET', KEYS[1]), sub(ARGV[1], 57)
local debt, stamp = 0, 0
if held then
  if sub(held, 15) ~= shape then return {now, -1, 1, held} end
  debt, stamp = struct.unpack('<I7I7', held)
end
if stamp < since then return {now, -1, 1, held or ''} end
if units == 0 then return {now, 1, debt, stamp} end

local d, left, s = debt, debt, stamp
if now > stamp then
  d, s = debt - (now - stamp) * drain, now
  left = d
  if tick ~= 1 then
    local whole = floor((now - stamp) / tick)
    d, s = debt - whole * drain, stamp + whole * tick
    left = d - floor((now - s) * drain / tick)
  end
  if left <= 0 then d, left, s = 0, 0, now end
end
if units < 0 or not (left <= capacity - units) then return {now, 0, debt, stamp} end

d = d + units
if charge == 1 then
  local value = struct.pack('<I7I7', d, s) .. shape
  if timed then
    call('SET', KEYS[1], value, 'PX', math.ceil((s - now + d / drain * tick) / 1000) + 1)
  else
    call('SET', KEYS[1], value)
  end
end
return {now, 1, d, s}
