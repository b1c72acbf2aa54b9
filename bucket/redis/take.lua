-- Takes from the buckets KEYS, each named once, all or none. ARGV[i] says what is wanted of KEYS[i], in doubles:
--   the time in us, or 0 for the server's own; 1 to charge, 0 to look; units wanted; units wanted by shadows, after those;
--   the longest wait accepted in us, or -1 for any; how many us ago the limit took effect, or -1 if nothing before it matters; 1 if it was the same at some
--   time before; how its rate was lowered, as in slow.lua; drain per tick, tick in us, capacity
-- and behind them the spans of slow.lua and the bytes that name the shape. ARGV[#KEYS+i], if there, is how to read a bucket that was left under another
-- limit: debt and stamp in doubles, and the value that they stand for. A number below zero for units is more than the bucket can hold.
--
-- A bucket is kept as debt and stamp, seven bytes each, and the bytes of its shape. All numbers are whole and below 2^53, where a double is
-- exact. A product may be larger; it is then larger than any debt, which is all that is asked of it.
--
-- Answers the time; 1 if all are allowed, else 0; and for each bucket 1 if its units fit, plus 2 if those of its shadows do, its debt and its
-- stamp. Or, if a bucket was left under another limit, the time, -1, and the number and the value of each such bucket; nothing is done then.
--
-- A bucket of places among the requests under way has a drain of 0. Its tick is for how many seconds a place is kept, and the bytes behind the numbers name
-- the place that is taken; what is answered in the place of its debt is how many are.
--
-- Where the clock was set back, a bucket goes on from now, and one that cannot be read stands as '!': see held.lua.
local decode, encode, call, floor, ceil, sub = struct.unpack, struct.pack, redis.call, math.floor, math.ceil, string.sub

-- owes is what is owed at a time: debt after whole ticks, and less what drained in the tick that has begun, and when the last whole tick was.
local function owes(debt, stamp, at, drain, tick)
  if at <= stamp then return debt, debt, stamp end
  local left = debt - (at - stamp) * drain
  if tick ~= 1 then
    local whole = floor((at - stamp) / tick)
    debt = debt - whole * drain
    left = debt - floor((at - stamp - whole * tick) * drain / tick)
    if left > 0 then return debt, left, stamp + whole * tick end
  end
  if left > 0 then return left, left, at end
  return 0, 0, at
end

local function ready(debt, stamp, at, drain, tick)
  local _, left = owes(debt, stamp, at, drain, tick)
  return left <= 0
end

local n = #KEYS
local now, charge, timed
local answer, found, changed = {0, 1}, {}, nil

for i = 1, n do
  local at, put, units, shadow, most, age, back, slow, drain, tick, capacity, rest = decode('<ddddddddddd', ARGV[i])
  if i == 1 then
    charge, timed = put == 1, at == 0
    if timed then
      local t = call('TIME')
      at = t[1] * 1000000 + t[2]
    end
    now = at
    answer[1] = now
  end
  local shape, told = sub(ARGV[i], rest + spans(slow)), ARGV[n + i]
  local held = drain > 0 and redis.pcall('GET', KEYS[i])
  if type(held) == 'table' or held == '' then held = '!' end
  local debt, stamp = 0, 0
  if drain == 0 then
    debt = taken(KEYS[i], now)
  elseif told and told ~= '' and sub(told, 17) == (held or '') then
    debt, stamp = decode('<dd', told)
  else
    local known = held and sub(held, 15) == shape
    if known then debt, stamp = decode('<I7I7', held) end
    if known and timed and stamp > now + 1000000 then
      stamp = now
      if charge then
        local px = math.min(2 ^ 53, ceil(debt / drain * tick * longer(slow) / 1000) + 1)
        call('SET', KEYS[i], encode('<I7I7', debt, now) .. shape, 'PX', px)
      end
    end
    if held and not known or age >= 0 and (not held or back == 1 and stamp < now - age) then
      changed = changed or {now, -1}
      changed[#changed + 1] = i
      changed[#changed + 1] = held or ''
    end
  end
  local was = stamp
  if slow > 0 then stamp = slowed(was, now, slow, ARGV[i], rest) end
  local d, left, s = owes(debt, stamp, now, drain, tick)
  local kept = slow > 0 and reached(s, stamp, was, now, slow, ARGV[i], rest) or s
  local ok = units == 0 or units > 0 and left <= capacity - units and (most < 0 or ready(debt, stamp, now + most, drain, tick))
  if not ok then answer[2] = 0 end
  local a = 3 * i
  answer[a], answer[a + 1], answer[a + 2] = ok and 1 or 0, debt, stamp
  found[i] = {d, left, s, units, shadow, most, drain, tick, capacity, shape, slow, kept}
end
if changed then return changed end

for i = 1, n do
  local d, left, s, units, shadow, most, drain, tick, capacity, shape, slow, kept = unpack(found[i])
  local a, all = 3 * i, answer[2] == 1
  if not all then d, left, s, units = answer[a + 1], left, answer[a + 2], 0 end
  local fits = shadow == 0 or shadow > 0 and left + units <= capacity - shadow and (most < 0 or ready(d + units, s, now + most, drain, tick))
  if fits then answer[a] = answer[a] + 2 end
  if all and fits then units = units + shadow end
  if all and units > 0 then
    d = d + units
    answer[a + 1], answer[a + 2] = d, s
    if charge and drain == 0 then
      occupy(KEYS[i], shape, now, tick, timed)
    elseif charge and timed then
      -- Full then, and forgotten; the millisecond on top is for what is rounded here. As for the bound, see held.lua.
      local px = math.min(2 ^ 53, ceil((s - now + d / drain * tick) * longer(slow) / 1000) + 1)
      call('SET', KEYS[i], encode('<I7I7', d, kept) .. shape, 'PX', px)
    elseif charge then
      call('SET', KEYS[i], encode('<I7I7', d, kept) .. shape)
    end
  end
end
return answer
