-- Tells who shares the buckets: KEYS[1] is a hash of replicas, each with when it was heard last and by how many it divides, seven bytes each, and how
-- it names buckets, eight bytes. ARGV[1] has, in doubles: the time in us, or 0 for the server's own; after how many us without a word a replica is gone;
-- by how many the caller divides now, 0 if it has no share yet; 1 if it leaves; and behind them, in eight bytes each, its name and how it names buckets.
--
-- The shares of all must never add up to more than one. With n replicas nobody divides by less than n, but those who have not heard yet. So who divides
-- by less is told n at once; and who divides by more, or has no share yet, is told n only when nobody else divides by less. What is written down is
-- never less than what the replica uses: a smaller share when it says so, a larger one when it is told.
--
-- The field '' says since when the list has been kept without a gap, and when anybody was heard last. A list that is new, because the server was
-- restarted, or that nobody could reach for half of the time after which replicas are gone, though each speaks three times in it, tells nothing about
-- who is gone: all have that time again to be heard, and meanwhile nobody takes more. Who has no share yet is told one all the same, or the first of all
-- would admit nothing for so long.
--
-- What is no such list, or no replica in it, is somebody else's, and is dropped.
--
-- Answers the time, how many there are, by how many the caller is to divide, 0 for no share yet, and how many name buckets in another way.
local decode, encode, call = struct.unpack, struct.pack, redis.call

local now, ttl, using, leaves, rest = decode('<dddd', ARGV[1])
local name, naming, timed = string.sub(ARGV[1], rest, rest + 7), string.sub(ARGV[1], rest + 8), now == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local since, last, kept = now, now, redis.pcall('HGET', KEYS[1], '')
if type(kept) == 'table' then
  if not string.find(kept.err, 'WRONGTYPE', 1, true) then return kept end
  -- no list
  call('DEL', KEYS[1])
elseif kept and #kept == 14 then
  since, last = decode('<I7I7', kept)
  if now - last > ttl / 2 or since > now then since = now end
end
call('HSET', KEYS[1], '', encode('<I7I7', since, now))

local n, least, strangers = 1, nil, 0
local all = call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if #all[i] ~= 8 and all[i] ~= '' or #all[i] == 8 and #all[i + 1] ~= 22 then
    call('HDEL', KEYS[1], all[i]) -- no replica
  elseif all[i] ~= name and all[i] ~= '' then
    local heard, divides = decode('<I7I7', all[i + 1])
    if now - math.max(heard, since) > ttl then
      call('HDEL', KEYS[1], all[i])
    else
      n = n + 1
      if divides > 0 and (not least or divides < least) then least = divides end
      -- A clock that was set back must not keep those who are gone.
      if heard > now then call('HSET', KEYS[1], all[i], encode('<I7I7', now, divides) .. string.sub(all[i + 1], 15)) end
      if string.sub(all[i + 1], 15) ~= naming then strangers = strangers + 1 end
    end
  end
end
if leaves == 1 then
  call('HDEL', KEYS[1], name)
  return {now, n - 1, 0, 0}
end

local told, written = using, using
if using > 0 and using < n then
  told = n
elseif using ~= n and (not least or least >= n) and (using == 0 or now - since > ttl) then
  told, written = n, n
end
call('HSET', KEYS[1], name, encode('<I7I7', now, written) .. naming)
if timed then call('PEXPIRE', KEYS[1], math.ceil(ttl / 1000) + 1) end
return {now, n, told, strangers}
