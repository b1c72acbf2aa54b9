-- Takes places among the requests under way anew, or gives them back. KEYS[i] is a bucket of them. ARGV[i] has, in doubles:
--   the time in us, or 0 for the server's own; for how many seconds to take the place anew, or 0 to give it back; how many to give back if it names none
-- and behind them the bytes of the place. What names none gives back those that would be kept for the shortest time, whoever has them.
--
-- A place that is kept no longer is taken anew whether or not there is room: its request is under way, and counted again.
--
-- Answers the time, and for each how many of them were taken.
local call = redis.call
local now, timed
local answer = {}
for i = 1, #KEYS do
  local at, seconds, most, rest = struct.unpack('<ddd', ARGV[i])
  if i == 1 then
    now, timed = at, at == 0
    if timed then
      local t = call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    answer[1] = now
  end
  local bucket, place = KEYS[i], string.sub(ARGV[i], rest)
  local found = 0
  if place == '' then
    if latest(bucket, now) > 0 then
      call('ZREMRANGEBYSCORE', bucket, '-inf', least(now) - 1)
      found = call('ZREMRANGEBYRANK', bucket, 0, most - 1)
    end
  else
    local held = ask('ZSCORE', bucket, place)
    if held then found = tonumber(held) >= least(now) and 1 or 0 end
    if seconds > 0 then
      occupy(bucket, place, now, seconds, timed)
    elseif held then
      call('ZREM', bucket, place)
    end
  end
  answer[i + 1] = found
end
return answer
