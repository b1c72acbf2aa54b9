-- Adds to the debt of the bucket KEYS[1], or takes off it. ARGV[1] has, in doubles:
--   the time in us, or 0 for the server's own; the units to add, or to take off if below zero; the most that may be owed;
--   of those to take off, how many at most were left of their charge at a time, and that time in us, or -1 for units of no charge: what has drained
--   since is not taken off again, rounded up;
--   the time in us after which what was given to the bucket is not given back again, or -1 for units of no charge; for how many ms to remember that
--   units were given to the bucket, or 0 if none are given; for how many ms to remember under which name;
--   how many us ago the limit took effect and whether it was the same before, as for takes, drain and tick; how the rate was lowered, as in slow.lua
-- behind them the spans of slow.lua, eight bytes that stand for what is asked for, where KEYS[3] is its name, and the bytes of the shape,
-- and ARGV[2], if there, is how to read a bucket that was left under another limit.
--
-- The message may arrive long after it was sent, or twice. So times are compared here, and what is taken off has a name.
--
-- What is given to a bucket may be used by others at once, so that of what was charged before it cannot be given back besides. KEYS[2], where units are
-- given, or what was charged at a time is taken off, holds what was given of late, at whatever process: the time and units, seven bytes each, and the
-- bytes of the shape. What was taken before that time is given back less these units; and not at all after the bucket was filled, or when the limit changed.
--
-- KEYS[3], if there, holds for as long as it is remembered what was given under that name: the eight bytes, and the units in seven. Under one name units
-- are given once.
--
-- Answers the time, how many units were moved, debt and stamp; 0 and 0 in their place if they were given before under that name. Or, if it was left under
-- another limit, the time, -1, 1 and the value. Or, if something else was given under that name, the time, 0, 0 and ''.

local at, units, most, undrained, asof, after, remember, named, age, back, drain, tick, slow, first = decode('<ddddddddddddd', ARGV[1])
local what, rest = nil, first + spans(slow)
if KEYS[3] then
  what, rest = sub(ARGV[1], rest, rest + 7), rest + 8
end
local shape = sub(ARGV[1], rest)
local now, timed = at, at == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local before = KEYS[3] and get(KEYS[3])
if before then
  if #before ~= 15 or sub(before, 1, 8) ~= what then return {now, 0, 0, ''} end
  return {now, -decode('<I7', sub(before, 9)), 0, 0}
end

local debt, stamp = find(KEYS[1], shape, dated(now, age), back, ARGV[2])
if not debt then return {now, -1, 1, stamp} end
local was = present(KEYS[1], debt, stamp, shape, timed, now, drain, tick, slow)
stamp = slowed(was, now, slow, ARGV[1], first)
local d, left, s = drained(now, debt, stamp, drain, tick)
if asof >= 0 then
  local late = math.max(now, stamp) - asof
  if late > 0 then undrained = undrained - ceil(late / tick) * drain end
  units = -math.min(-units, math.max(0, undrained))
end

-- given is what was given to the bucket after a time: 0 for nothing, 2^53 for all that it owed, or if nobody can tell.
local function given(after)
  local held = get(KEYS[2])
  if not held then return 0 end
  if #held < 14 then return 2 ^ 53 end
  local when, sum = decode('<I7I7', held)
  if when <= after then return 0 end
  return sub(held, 15) == shape and sum or 2 ^ 53
end

local function note(name, value, ms)
  if timed then
    call('SET', name, value, 'PX', ms)
  else
    call('SET', name, value)
  end
end

local function give(more)
  note(KEYS[2], encode('<I7I7', now, math.min(2 ^ 53, given(0) + more)) .. shape, remember)
end

if after >= 0 then units = math.min(0, units + given(after)) end
if remember > 0 and units <= -2 ^ 53 then give(2 ^ 53) end

local moved
if units >= 0 then
  moved = math.min(units, math.max(0, most - left))
  d = d + moved
elseif units <= -left then
  moved, d, s = -left, 0, math.max(now, stamp)
else
  moved, d = units, d + units
end
if what then note(KEYS[3], what .. encode('<I7', -moved), named) end
if moved == 0 then return {now, 0, debt, stamp} end
if remember > 0 and units > -2 ^ 53 then give(-moved) end

if d == 0 then
  call('DEL', KEYS[1])
else
  keep(KEYS[1], d, s, shape, timed, now, drain, tick, slow, reached(s, stamp, was, now, slow, ARGV[1], first))
end
return {now, moved, d, s}
