package nemesis

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// doSorted is a command about a sorted set whose scores are whole numbers.
func (e *Engine) doSorted(words []string, held value) (lua.LValue, error) {
	name := words[1]
	made := maps.Clone(held.scores) // a snapshot may hold it
	if made == nil {
		made = map[string]int64{}
	}
	ranked := slices.SortedFunc(maps.Keys(made), func(a, b string) int {
		return cmp.Or(cmp.Compare(made[a], made[b]), cmp.Compare(a, b))
	})
	switch words[0] {
	case "ZSCORE":
		score, has := made[words[2]]
		return textOr(strconv.FormatInt(score, 10), has), nil
	case "ZCOUNT":
		from, to, err := between(words[2], words[3])
		n := 0
		for _, score := range made {
			if from <= score && score <= to {
				n++
			}
		}
		return lua.LNumber(n), err
	case "ZRANGE", "ZREVRANGE":
		from, to, err := ranks(words[2], words[3], len(ranked))
		if words[0] == "ZREVRANGE" {
			slices.Reverse(ranked)
		}
		t := e.lua.NewTable()
		for _, member := range ranked[from:to] {
			t.Append(lua.LString(member))
			t.Append(lua.LString(strconv.FormatInt(made[member], 10)))
		}
		return t, err
	case "ZADD":
		score, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return nil, err
		}
		_, has := made[words[3]]
		made[words[3]] = score
		e.data[name] = value{scores: made, expires: held.expires}
		return count(!has), nil
	}
	var gone []string
	switch words[0] {
	case "ZREM":
		gone = []string{words[2]}
	case "ZREMRANGEBYSCORE":
		from, to, err := between(words[2], words[3])
		if err != nil {
			return nil, err
		}
		for member, score := range made {
			if from <= score && score <= to {
				gone = append(gone, member)
			}
		}
	case "ZREMRANGEBYRANK":
		from, to, err := ranks(words[2], words[3], len(ranked))
		if err != nil {
			return nil, err
		}
		gone = ranked[from:to]
	default:
		return nil, fmt.Errorf("ERR unknown command '%s'", words[0])
	}
	before := len(made)
	for _, member := range gone {
		delete(made, member)
	}
	if e.data[name] = (value{scores: made, expires: held.expires}); len(made) == 0 {
		delete(e.data, name)
	}
	return lua.LNumber(before - len(made)), nil
}

// between are the scores from one to another, both among them.
func between(from, to string) (first, last int64, err error) {
	if first, last = math.MinInt64, math.MaxInt64; from != "-inf" {
		if first, err = strconv.ParseInt(from, 10, 64); err != nil {
			return 0, 0, err
		}
	}
	if to != "+inf" {
		last, err = strconv.ParseInt(to, 10, 64)
	}
	return first, last, err
}

// ranks are the places from one to another of so many, both among them, as a part of a list.
func ranks(from, to string, of int) (first, end int, err error) {
	a, err := strconv.Atoi(from)
	if err != nil {
		return 0, 0, err
	}
	b, err := strconv.Atoi(to)
	if b < 0 {
		b += of
	}
	end = min(b+1, of)
	return min(a, max(0, end)), max(0, end), err
}
