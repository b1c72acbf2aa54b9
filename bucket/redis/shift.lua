-- Adds to the debt of the bucket KEYS[1], or takes off it. ARGV[1] has, in doubles:
--   the time in us, or 0 for the server's own; the units to add, or to take off if below zero; the most that may be owed;
--   the time in us at which units to take off were charged, or 0: what has drained since is not taken off again, rounded up;
--   the time at which the limit took effect, drain, tick and the bytes of the shape, all as for takes
-- and ARGV[2], if there, is how to read a bucket that was left under another limit.
--
-- Answers the time, how many units were moved, debt and stamp. Or, if it was left under another limit, the time, -1, 1 and the value.

local at, units, most, charged, since, drain, tick, rest = decode('<ddddddd', ARGV[1])
local shape = sub(ARGV[1], rest)
local now, timed = at, at == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local debt, stamp = find(KEYS[1], shape, since, ARGV[2])
if not debt then return {now, -1, 1, stamp} end
local d, left, s = drained(now, debt, stamp, drain, tick)
if charged > 0 and now > charged then
  units = math.min(0, units + ceil((now - charged) / tick) * drain)
end

local moved
if units >= 0 then
  moved = math.min(units, math.max(0, most - left))
  d = d + moved
elseif units <= -left then
  moved, d, s = -left, 0, math.max(now, stamp)
else
  moved, d = units, d + units
end
if moved == 0 then return {now, 0, debt, stamp} end

if d == 0 then
  call('DEL', KEYS[1])
else
  keep(KEYS[1], d, s, shape, timed, now, drain, tick)
end
return {now, moved, d, s}
