-- Answers questions of a replica for tokens, each as lease.Ledger.Grant does: as many as are wanted or there, and none if they are fewer than needed.
-- Question i is about the bucket KEYS[2i-1]; KEYS[2i] holds the last answer to the replica about it, so that a question that is asked twice is charged
-- once, and is not looked at for a look. ARGV[i] has, in doubles:
--   the time in us, or 0 for the server's own; the number of the question, in two halves of 32 bits, 0 for a look; tokens wanted; tokens needed;
--   how many us ago the limit took effect and whether it was the same before, as for takes, drain, tick, capacity, unit; for how many ms to remember the
--   answer; how the rate was lowered, as in slow.lua
-- and behind them the spans of slow.lua and the bytes of the shape. ARGV[2], if there is one question, is how to read a bucket that was left under another
-- limit, as for takes.
--
-- An answer is kept as the number, two halves of four bytes, tokens, time, debt and stamp of seven bytes each, and the bytes of the shape.
--
-- Answers four values a question: the time, the tokens, and the debt and stamp that they leave. Or the time, -2, the answer that is kept, if that is to
-- this question, or nothing in its place if that is to a later one, and 0. Or, if the bucket was left under another limit, the time, -1, 1 and the value.

local clock
local function time()
  if not clock then
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2]
  end
  return clock
end

local function grant(bucket, answers, arg, told)
  local at, high, low, want, need, age, back, drain, tick, capacity, unit, remember, slow, rest = decode('<ddddddddddddd', arg)
  local now, timed, asked = at, at == 0, high + low > 0
  if timed then now = time() end

  local last = asked and get(answers)
  local mark = last and string.byte(last, 37)
  if mark and mark >= 192 and mark <= 223 then -- else it is no answer, and another takes its place: a question that is charged twice grants nothing
    local h, l = decode('<I4I4', last)
    if h > high or h == high and l > low then return now, -2, '', 0 end
    if h == high and l == low then return now, -2, last, 0 end
  end

  local shape = sub(arg, rest + spans(slow))
  local debt, stamp = find(bucket, shape, dated(now, age), back, told)
  if not debt then return now, -1, 1, stamp end
  if asked then
    stamp = present(bucket, debt, stamp, shape, timed, now, drain, tick, slow)
  elseif timed and stamp > now + 1000000 then
    stamp = now -- as in present, of which a look writes nothing down
  end
  local was = stamp
  stamp = slowed(was, now, slow, arg, rest)
  local d, left, s = drained(now, debt, stamp, drain, tick)

  -- A capacity is at most 2^52, so a quotient that is not whole is further from the next whole number than doubles are apart.
  local tokens = math.min(want, floor((capacity - left) / unit))
  if tokens >= math.max(1, need) then
    d = d + tokens * unit
    keep(bucket, d, s, shape, timed, now, drain, tick, slow, reached(s, stamp, was, now, slow, arg, rest))
  else
    tokens, d, s = 0, debt, stamp
  end
  if asked then
    local answer = encode('<I4I4I7I7I7I7', high, low, tokens, now, d, s) .. shape
    if timed then
      call('SET', answers, answer, 'PX', remember)
    else
      call('SET', answers, answer)
    end
  end
  return now, tokens, d, s
end

local questions = #KEYS / 2
local all, told = {}, questions == 1 and ARGV[2] or nil
for i = 1, questions do
  local a = 4 * i
  all[a - 3], all[a - 2], all[a - 1], all[a] = grant(KEYS[2 * i - 1], KEYS[2 * i], ARGV[i], told)
end
return all
