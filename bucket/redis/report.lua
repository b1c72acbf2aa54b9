-- Charges what a replica reports of buckets, each as report.Ledger.Charge does: whatever is owed already, and each report once.
-- Report i is about the bucket KEYS[2i-1]; KEYS[2i] holds the number of the last report of the replica about it, two halves of four bytes. ARGV[i]
-- has, in doubles:
--   the time in us, or 0 for the server's own; the number of the report, in two halves of 32 bits; units; the most that may be owed;
--   how many us ago the limit took effect and whether it was the same before, as for takes, drain, tick; for how many ms to remember the number;
--   how the rate was lowered, as in slow.lua
-- and behind them the spans of slow.lua and the bytes of the shape. ARGV[2], if there is one report, is how to read a bucket that was left under another
-- limit, as for takes.
--
-- Answers two values a report: what is owed then, and ''. Or, if the bucket was left under another limit, the time and the value; nothing was done
-- then, and 'c' stands before the value.

local clock
local function time()
  if not clock then
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2]
  end
  return clock
end

local function charge(bucket, mark, arg, told)
  local at, high, low, units, most, age, back, drain, tick, remember, slow, rest = decode('<ddddddddddd', arg)
  local now, timed = at, at == 0
  if timed then now = time() end

  local shape = sub(arg, rest + spans(slow))
  local debt, stamp = find(bucket, shape, dated(now, age), back, told)
  if not debt then return now, 'c' .. stamp end
  local was = present(bucket, debt, stamp, shape, timed, now, drain, tick, slow)
  stamp = slowed(was, now, slow, arg, rest)
  local d, left, s = drained(now, debt, stamp, drain, tick)

  local last, known = get(mark), false
  if last and #last == 8 then
    local h, l = decode('<I4I4', last)
    known = h > high or h == high and l >= low
  end
  if known then return left, '' end

  local moved = math.min(units, math.max(0, most - left))
  local kept = reached(s, stamp, was, now, slow, arg, rest)
  if moved > 0 then keep(bucket, d + moved, s, shape, timed, now, drain, tick, slow, kept) end
  if timed then
    call('SET', mark, encode('<I4I4', high, low), 'PX', remember)
  else
    call('SET', mark, encode('<I4I4', high, low))
  end
  return left + moved, ''
end

local reports = #KEYS / 2
local all, told = {}, reports == 1 and ARGV[2] or nil
for i = 1, reports do
  all[2 * i - 1], all[2 * i] = charge(KEYS[2 * i - 1], KEYS[2 * i], ARGV[i], told)
end
return all
