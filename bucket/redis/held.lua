-- What grant.lua, report.lua and shift.lua begin with, behind slow.lua.
local decode, encode, call, floor, ceil, sub = struct.unpack, struct.pack, redis.call, math.floor, math.ceil, string.sub

-- get is what the server keeps under a name: a string, or false for nothing. What is no string cannot be read, and stands as '!', which no bucket is.
local function get(name)
  local held = redis.pcall('GET', name)
  if type(held) == 'table' or held == '' then return '!' end
  return held
end

-- find is the bucket of a name: its debt and stamp. Or, if it was left under another limit, or may have been, nil and what the server keeps; told says
-- how to read that. The limit took effect at since, or nothing before that matters if since is 0. A bucket of its shape was left under it, unless
-- the limit was the same at some time before (back); a bucket that is missing may have expired under the limit before.
local function find(name, shape, since, back, told)
  local held = get(name)
  if told and sub(told, 17) == (held or '') then return decode('<dd', told) end
  if not held then
    if since > 0 then return nil, '' end
    return 0, 0
  end
  if sub(held, 15) ~= shape then return nil, held end
  local debt, stamp = decode('<I7I7', held)
  if back == 1 and stamp < since then return nil, held end
  return debt, stamp
end

-- dated is the time at which a limit took effect, by the server's clock: so long ago as the caller's clock counts, which may be set to any time. 0 is
-- for a limit before which nothing matters, whose age is below 0.
local function dated(now, age)
  if age < 0 then return 0 end
  return math.max(1, now - age)
end

-- drained is the debt after whole ticks, the same less what drained in the tick that has begun, and when the last whole tick was.
local function drained(now, debt, stamp, drain, tick)
  if now <= stamp then return debt, debt, stamp end
  local whole = floor((now - stamp) / tick)
  local d, s = debt - whole * drain, stamp + whole * tick
  local left = d - floor((now - s) * drain / tick)
  if left <= 0 then return 0, 0, now end
  return d, left, s
end

-- keep writes a bucket that is at s, for as long as it is in debt if the time is the server's, at a rate as slow as in slow.lua; but for 285,000 years at
-- most, as what has 18 digits reaches the server with an exponent, and is refused. Kept is what slow.lua has kept in the place of s.
local function keep(name, d, s, shape, timed, now, drain, tick, slow, kept)
  local value = encode('<I7I7', d, kept or s) .. shape
  if timed then
    call('SET', name, value, 'PX', math.min(2 ^ 53, ceil((s - now + d / drain * tick) * longer(slow) / 1000) + 1))
  else
    call('SET', name, value)
  end
end

-- present is a stamp that is at most a second ahead of now. One further ahead was written before the server's clock was set back, and nothing would
-- drain until the clock is there again; so the bucket goes on from now, with all that it owes. That is written down at once, or it would go on from
-- now at every look.
local function present(name, d, s, shape, timed, now, drain, tick, slow)
  if not timed or s <= now + 1000000 then return s end
  keep(name, d, now, shape, timed, now, drain, tick, slow)
  return now
end
