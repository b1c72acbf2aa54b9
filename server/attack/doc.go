// Package attack holds what attackers send to get past a rate limit, a client that sends it byte
// for byte, and the judgement of what was admitted. The command `headgate attack` aims it at a
// deployment of the user's own; eval/attacks aims it at this gateway and at others.
//
// What is judged is the envelope that a limit promises: in any interval of length t at most burst +
// rate·t requests. A request counts into an interval only if it was sent after the interval's begin
// and seen before its end, so a slow network or a busy machine can hide an excess, and never invent
// one.
package attack
