-- What grant.lua, report.lua and shift.lua begin with.
local decode, encode, call, floor, ceil, sub = struct.unpack, struct.pack, redis.call, math.floor, math.ceil, string.sub

-- find is the bucket of a name: its debt and stamp. Or, if it was left under another limit, nil and what the server keeps; told says how to read that.
local function find(name, shape, since, told)
  local held = call('GET', name)
  if told and sub(told, 17) == (held or '') then return decode('<dd', told) end
  local known, debt, stamp = held and sub(held, 15) == shape, 0, 0
  if known then debt, stamp = decode('<I7I7', held) end
  if held and not known or stamp < since then return nil, held or '' end
  return debt, stamp
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

-- keep writes a bucket, for as long as it is in debt if the time is the server's; but for 285,000 years at most, as what has 18 digits reaches the
-- server with an exponent, and is refused.
local function keep(name, d, s, shape, timed, now, drain, tick)
  if timed then
    call('SET', name, encode('<I7I7', d, s) .. shape, 'PX', math.min(2 ^ 53, ceil((s - now + d / drain * tick) / 1000) + 1))
  else
    call('SET', name, encode('<I7I7', d, s) .. shape)
  end
end
