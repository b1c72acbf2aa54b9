-- What take.lua and places.lua begin with: places among the requests under way. A bucket of them is a sorted set with a member for each that is taken:
-- eight bytes of the process that took it, and four of the place. So nobody can give back the place of another, however late its message arrives.
--
-- A score is until when the place is kept unless it is taken anew, in hundredths of a second by the server's clock, times 4096; and for how many seconds
-- it was taken, so that a clock that was set back keeps no place for longer than that. It stays below 2^52 for ten thousand years.

-- least is the lowest score of what is taken at a time.
local function least(now) return (math.floor(now / 10000) + 1) * 4096 end

-- score is that of a place that is taken for so many seconds at a time.
local function score(now, seconds) return least(now) + seconds * 100 * 4096 + seconds end

-- ask is what a command says of a bucket, or nil if that is no set of places but somebody else's. Any other error ends the script: what may not be
-- asked, by a user who lacks the command, must not pass for empty.
local function ask(...)
  local said = redis.pcall(...)
  if type(said) ~= 'table' or not said.err then return said end
  if string.find(said.err, 'WRONGTYPE', 1, true) then return nil end
  return redis.call(...)
end

-- taken is how many places are at a time.
local function taken(bucket, now) return ask('ZCOUNT', bucket, least(now), '+inf') or 0 end

-- ahead says that a place was taken before the clock was set back by more than a second.
local function ahead(of, now) return of > score(now, of % 4096 + 1) end

-- latest is the highest score, of places that are kept for no longer than they were taken for. What is no set of them is somebody else's, and is dropped.
local function latest(bucket, now)
  local first = ask('ZREVRANGE', bucket, 0, 0, 'WITHSCORES')
  if not first then
    redis.call('DEL', bucket)
    return 0
  end
  local last = tonumber(first[2] or 0)
  if not ahead(last, now) then return last end
  local all, most = redis.call('ZREVRANGE', bucket, 0, -1, 'WITHSCORES'), 0
  for i = 1, #all, 2 do
    local one = tonumber(all[i + 1])
    if ahead(one, now) then
      one = score(now, one % 4096)
      redis.call('ZADD', bucket, one, all[i])
    end
    most = math.max(most, one)
  end
  return most
end

-- occupy takes a place, or takes it anew, and forgets those that are kept no longer.
local function occupy(bucket, place, now, seconds, timed)
  local until_ = score(now, seconds)
  local last = math.max(until_, latest(bucket, now))
  redis.call('ZREMRANGEBYSCORE', bucket, '-inf', least(now) - 1)
  redis.call('ZADD', bucket, until_, place)
  if timed then redis.call('PEXPIRE', bucket, math.floor(last / 4096) * 10 - math.floor(now / 1000) + 1) end
end
