-- Adds to the debt of the bucket KEYS[1], or takes off it. ARGV[1] has, in doubles:
--   the time in us, or 0 for the server's own; the units to add, or to take off if below zero; the most that may be owed;
--   the time in us at which units to take off were charged, or 0: what has drained since is not taken off again, rounded up;
--   the time at which the limit took effect, drain, tick and the bytes of the shape, all as for takes
-- and ARGV[2], if there, is how to read a bucket that was left under another limit.
--
-- Answers the time, how many units were moved, debt and stamp. Or, if it was left under another limit, the time, -1, 1 and the value.
local decode, encode, call, floor, ceil, sub = struct.unpack, struct.pack, redis.call, math.floor, math.ceil, string.sub

local at, units, most, charged, since, drain, tick, rest = decode('<ddddddd', ARGV[1])
local shape, held, told = sub(ARGV[1], rest), call('GET', KEYS[1]), ARGV[2]
local now, timed = at, at == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local debt, stamp = 0, 0
if told and sub(told, 17) == (held or '') then
  debt, stamp = decode('<dd', told)
else
  local known = held and sub(held, 15) == shape
  if known then debt, stamp = decode('<I7I7', held) end
  if held and not known or stamp < since then return {now, -1, 1, held or ''} end
end

local d, left, s = debt, debt, stamp
if now > stamp then
  local whole = floor((now - stamp) / tick)
  d, s = debt - whole * drain, stamp + whole * tick
  left = d - floor((now - s) * drain / tick)
  if left <= 0 then d, left, s = 0, 0, now end
end
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
elseif timed then
  call('SET', KEYS[1], encode('<I7I7', d, s) .. shape, 'PX', ceil((s - now + d / drain * tick) / 1000) + 1)
else
  call('SET', KEYS[1], encode('<I7I7', d, s) .. shape)
end
return {now, moved, d, s}
