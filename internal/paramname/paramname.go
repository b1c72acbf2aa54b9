// Package paramname says which names of query and form parameters servers take for one another.
package paramname

import "bytes"

// Most is the longest name, in bytes, that Alike compares without allocating.
const Most = 256

// Alike reports whether some server may take the decoded name of a parameter for want, though it is not spelled so.
// It covers what was measured (eval/garden) and, where that is wider, what their sources say:
//
//   - ASP.NET ignores letter case; strings of C end at a zero byte;
//   - PHP drops spaces in front, and makes _ of spaces, dots and a [ that is not closed;
//   - qs (Express) reads [user], [user]x and [user]x[0] as user, and drops what follows a closed bracket;
//   - qs with allowDots (Koa's body parsers) reads .user as user, and user.email as user[email];
//   - Rack 2 drops brackets in front, and one or more ] behind the name.
//
// user[email] and user[password] are two parameters to all of them, so they are not alike; user[email] and user[], or
// user[email]x, may be one.
func Alike(name, want []byte) bool {
	if nul := bytes.IndexByte(name, 0); nul >= 0 {
		name = name[:nul]
	}
	if same(name, want, " .[") {
		return true
	}
	var spaceName, spaceWant [2 * Most]byte
	return sameMember(name, want) || sameMember(undot(spaceName[:0], name), undot(spaceWant[:0], want))
}

// sameMember reports whether two names with brackets may be one variable, and one member of it.
func sameMember(name, want []byte) bool {
	variable, members, plain := cut(name)
	wanted, wantedMembers, _ := cut(want)
	if !same(variable, wanted, " .") {
		return false
	}
	member, ok1 := first(members)
	wantedMember, ok2 := first(wantedMembers)
	return !plain || !ok1 || !ok2 || same(member, wantedMember, " .")
}

// Odd reports whether a name may mean another parameter than the one it spells: one with a bracket or a zero byte, or
// with a space at its ends.
func Odd(name []byte) bool {
	return len(name) > 0 && (name[0] == ' ' || name[len(name)-1] == ' ') || bytes.ContainsAny(name, "[]\x00")
}

// same compares names without letter case, spaces at their ends, and what tells the bytes of underscores from _.
func same(a, b []byte, underscores string) bool {
	var spaceA, spaceB [Most]byte
	return bytes.EqualFold(mangle(append(spaceA[:0], bytes.Trim(a, " ")...), underscores),
		mangle(append(spaceB[:0], bytes.Trim(b, " ")...), underscores))
}

func mangle(name []byte, underscores string) []byte {
	for i, c := range name {
		for j := range len(underscores) {
			if c == underscores[j] {
				name[i] = '_'
			}
		}
	}
	return name
}

// undot appends a name in which members behind a dot stand in brackets.
func undot(dst, name []byte) []byte {
	for i := 0; i < len(name); i++ {
		end := i + 1
		for end < len(name) && name[end] != '.' && name[end] != '[' {
			end++
		}
		if name[i] != '.' || end == i+1 {
			dst = append(dst, name[i])
			continue
		}
		dst = append(append(append(dst, '['), name[i+1:end]...), ']')
		i = end - 1
	}
	return dst
}

// cut cuts a name where the name of its variable ends: that is its first part without brackets, for qs and Rack. Plain
// says that all brackets stand behind it, in pairs with nothing between these: then no server finds another variable.
func cut(name []byte) (variable, members []byte, plain bool) {
	trimmed := bytes.TrimLeft(name, "[] ")
	plain = len(trimmed) == len(name)
	at := bytes.IndexAny(trimmed, "[]")
	if at < 0 {
		return trimmed, nil, plain
	}
	members = trimmed[at:]
	for rest := members; len(rest) > 0 && plain; {
		end := bytes.IndexByte(rest, ']')
		plain = rest[0] == '[' && end > 0 && bytes.IndexByte(rest[1:end], '[') < 0
		rest = rest[end+1:]
	}
	return trimmed[:at], members, plain
}

// first returns the name in the first brackets, if there is one.
func first(members []byte) ([]byte, bool) {
	if len(members) == 0 {
		return nil, false
	}
	member, _, closed := bytes.Cut(members[1:], []byte{']'})
	member = bytes.Trim(member, " ")
	return member, closed && len(member) > 0 && bytes.IndexByte(member, '[') < 0
}
