// Package attacks runs the adversarial cases of the paper's section 12 against
// the real gateway process, over sockets: what an attacker can reach is what
// is tested. The tests carry the paper's names.
package attacks
