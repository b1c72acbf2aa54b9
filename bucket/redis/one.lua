-- take.lua for what most decisions are: a charge to a single bucket that nobody watches or waits for, in ticks of a microsecond, whose limit has not
-- changed of late. It costs the server less (BenchmarkAgainstOtherScripts): every number that is
-- read, answered or made a text of tells.
-- ARGV[1] has, in doubles: the time in us, or 0 for the server's own; units wanted, 1 or more; how much may be owed without them; drain per
-- microsecond; and the bytes of the shape.
--
-- Answers the time and the debt, and the stamp if that is not the time. Or, if the units do not fit, the time, -2, debt and stamp. Or, if the bucket
-- was left under another limit, the time and -1.
local call, sub = redis.call, string.sub
local now, units, room, drain, rest = struct.unpack('<dddd', ARGV[1])
local timed = now == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local d, s, shape, held = 0, now, sub(ARGV[1], rest), redis.pcall('GET', KEYS[1])
if held then
  if type(held) == 'table' or sub(held, 15) ~= shape then return {now, -1} end
  local debt, stamp = struct.unpack('<I7I7', held)
  d = debt
  if now > stamp then
    d = debt - (now - stamp) * drain
    if d < 0 then d = 0 end
  elseif timed and stamp > now + 1000000 then
    stamp = now -- as in held.lua
    call('SET', KEYS[1], struct.pack('<I7I7', d, now) .. shape, 'PX', string.format('%d', d / drain / 1000 + 2))
  else
    s = stamp
  end
  if d > room then return {now, -2, debt, stamp} end
end

d = d + units
local value = struct.pack('<I7I7', d, s) .. shape
if timed then
  -- %d rounds down what is 1 ms too much, and is faster than what the server makes of a number.
  call('SET', KEYS[1], value, 'PX', string.format('%d', (s - now + d / drain) / 1000 + 2))
else
  call('SET', KEYS[1], value)
end
if s == now then return {now, d} end
return {now, d, s}
