-- Puts a bucket in the place of what is kept under KEYS[1], if that is still as it was found, which is ARGV[2]: '!' stands for what is no string. ARGV[1] has, in
-- doubles: the time in us, or 0 for the server's own; debt and stamp, drain and tick; and behind them the bytes of the shape.
--
-- Answers the time, and 1 if it did.
local at, d, s, drain, tick, rest = decode('<ddddd', ARGV[1])
local now, timed = at, at == 0
if timed then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
if get(KEYS[1]) ~= ARGV[2] then return {now, 0} end
if timed and s + d / drain * tick <= now then
  call('DEL', KEYS[1]) -- full: this message took its time
  return {now, 1}
end
keep(KEYS[1], d, s, sub(ARGV[1], rest), timed, now, drain, tick, 0)
return {now, 1}
