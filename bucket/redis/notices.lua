-- Has replicas tell each other something, each the latest that it has to say: KEYS[1] is a hash of replicas, each with when it spoke, seven bytes, and what
-- it said. ARGV[1] has, in doubles: the time in us, or 0 for the server's own; after how many us what was said is forgotten; how many bytes one may say;
-- how many others are heard at most; and behind them the name of the replica, eight bytes, and what it says. Nothing is to be forgotten.
--
-- What is no such hash, or nothing that a replica says, is somebody else's, and is dropped. So is what was said at a time that is still to come, by a
-- clock that was set back since. What is longer than one may say here, as another version may, stays, and is heard as ''.
--
-- Answers the time, how many others are heard, and what they say.
local decode, call, sub = struct.unpack, redis.call, string.sub

local now, ttl, longest, most, rest = decode('<dddd', ARGV[1])
local name, said, timed = sub(ARGV[1], rest, rest + 7), sub(ARGV[1], rest + 8), now == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local all, heard = redis.pcall('HGETALL', KEYS[1]), {now, 0}
if all.err then
  if not string.find(all.err, 'WRONGTYPE', 1, true) then return all end
  call('DEL', KEYS[1])
  all = {}
end
for i = 1, #all, 2 do
  local who, what, keep = all[i], all[i + 1], false
  if #who == 8 and #what > 7 and #heard < most + 2 then
    local at = decode('<I7', what)
    keep = at <= now and now - at <= ttl
  end
  if not keep then
    call('HDEL', KEYS[1], who)
  elseif who ~= name then
    heard[#heard + 1] = #what <= 7 + longest and sub(what, 8) or ''
  end
end
if said == '' then
  call('HDEL', KEYS[1], name)
else
  call('HSET', KEYS[1], name, struct.pack('<I7', now) .. said)
  if timed then call('PEXPIRE', KEYS[1], math.ceil(ttl / 1000) + 1) end
end
heard[2] = #heard - 2
return heard
