-- across is how long ago something was by one of two clocks that was gone ago by the other: the store's, and one that is as slow as the rate was. There are
-- slow % 16 spans in arg from rest on, each with an age in us and what the slower clock has counted since then; the time before goes by both alike.
-- It is from the store's clock to the slower one, or back.
local function across(gone, slow, arg, rest, back)
  local here, there = 0, 0
  for _ = 1, slow % 16 do
    local a, b
    a, b, rest = struct.unpack('<dd', arg, rest)
    if back then a, b = b, a end
    if gone <= a then return math.floor(there + (gone - here) * (b - there) / (a - here)) end
    here, there = a, b
  end
  return math.floor(there + gone - here)
end

-- slowed is the time since which the full rate drains what has drained since a stamp at a rate that was lowered of late: from the stamp to now. Slow is 0
-- for a rate that was not; else how many 1024ths of it are in force, times 16, and how many spans follow in arg from rest on. Nobody can be told spans by
-- which more drains than at the full rate.
local function slowed(stamp, now, slow, arg, rest)
  if slow == 0 or now <= stamp then return stamp end
  return math.max(stamp, now - across(now - stamp, slow, arg, rest))
end

-- reached is when a bucket was at s, a time of slowed: stamp, which was found, is slowed now. That is kept, or what has passed of a tick would be slowed
-- at each charge again.
local function reached(s, slowly, stamp, now, slow, arg, rest)
  if slow == 0 or now <= s then return s end
  return math.max(stamp + s - slowly, now - across(now - s, slow, arg, rest, true))
end

-- spans is how many bytes they take, and longer how many times longer a bucket owes than at the full rate.
local function spans(slow) return slow % 16 * 16 end

local function longer(slow) return slow < 16 and 1 or 1024 / math.floor(slow / 16) end
