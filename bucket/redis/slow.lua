-- slowed is the time since which the full rate drains what has drained since a stamp at a rate that was lowered of late: from the stamp to now. Slow is 0
-- for a rate that was not; else how many 1024ths of it are in force, times 16, and how many spans follow in arg from rest on: an age in us, and what a
-- slower clock has counted since then. Nobody can be told spans by which more drains than at the full rate.
local function slowed(stamp, now, slow, arg, rest)
  local gone, age, counted = now - stamp, 0, 0
  if slow == 0 or gone <= 0 then return stamp end
  for _ = 1, slow % 16 do
    local a, c
    a, c, rest = struct.unpack('<dd', arg, rest)
    if gone <= a then
      return math.max(stamp, now - math.floor(counted + (gone - age) * (c - counted) / (a - age)))
    end
    age, counted = a, c
  end
  return math.max(stamp, now - math.floor(counted + gone - age))
end

-- reached is when a bucket was at s, a time of slowed: stamp, which was found, is slowed now. That is kept, or what has passed of a tick would be slowed
-- at each charge again.
local function reached(s, slowly, stamp, now, slow, arg, rest)
  local gone, age, counted = now - s, 0, 0
  if slow == 0 or gone <= 0 then return s end
  for _ = 1, slow % 16 do
    local a, c
    a, c, rest = struct.unpack('<dd', arg, rest)
    if gone <= c then
      return math.max(stamp + s - slowly, now - math.floor(age + (gone - counted) * (a - age) / (c - counted)))
    end
    age, counted = a, c
  end
  return math.max(stamp + s - slowly, now - math.floor(age + gone - counted))
end

-- spans is how many bytes they take, and longer how many times longer a bucket owes than at the full rate.
local function spans(slow) return slow % 16 * 16 end

local function longer(slow) return slow < 16 and 1 or 1024 / math.floor(slow / 16) end
