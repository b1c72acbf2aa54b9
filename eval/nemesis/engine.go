package nemesis

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Engine is a server that runs scripts as Redis does: one at a time, by its own clock. It knows the
// commands that the scripts of bucket/redis call.
type Engine struct {
	mu      sync.Mutex
	now     func() int64 // its wall clock, in Unix microseconds
	data    map[string]value
	scripts map[string]*lua.FunctionProto // by SHA-1, that it was told
	lua     *lua.LState
}

// value is what is kept under a name: a text, a hash or a sorted set.
type value struct {
	text    string
	hash    map[string]string
	scores  map[string]int64
	expires int64 // in Unix milliseconds; 0 for never
}

// kind is by which letter its own commands begin, 0 if by none of a kind.
func (v value) kind() byte {
	switch {
	case v.hash != nil:
		return 'H'
	case v.scores != nil:
		return 'Z'
	}
	return 0
}

// kindOf is what kind of value a command is for.
func kindOf(command string) byte {
	if command[0] == 'H' || command[0] == 'Z' {
		return command[0]
	}
	return 0
}

// NewEngine returns an empty server with a clock.
func NewEngine(now func() int64) *Engine {
	e := &Engine{now: now, data: map[string]value{}, scripts: map[string]*lua.FunctionProto{}, lua: lua.NewState()}
	redis := e.lua.NewTable()
	e.lua.SetField(redis, "call", e.lua.NewFunction(e.call))
	e.lua.SetField(redis, "pcall", e.lua.NewFunction(e.pcall))
	e.lua.SetGlobal("redis", redis)
	structs := e.lua.NewTable()
	e.lua.SetField(structs, "pack", e.lua.NewFunction(pack))
	e.lua.SetField(structs, "unpack", e.lua.NewFunction(unpack))
	e.lua.SetGlobal("struct", structs)
	return e
}

// Eval runs a script as EVAL and EVALSHA do, and answers what a client of Redis hears.
func (e *Engine) Eval(command, script string, keys, args []string) (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sha := script
	if command == "EVAL" {
		sum := sha1.Sum([]byte(script))
		sha = hex.EncodeToString(sum[:])
		if e.scripts[sha] == nil {
			made, err := compiled(script)
			if err != nil {
				return nil, err
			}
			e.scripts[sha] = made
		}
	}
	run := e.scripts[sha]
	if e.lua.IsClosed() {
		return nil, errors.New("the server is gone")
	}
	if run == nil {
		return nil, errors.New("NOSCRIPT No matching script. Please use EVAL.")
	}
	e.lua.SetGlobal("KEYS", e.texts(keys))
	e.lua.SetGlobal("ARGV", e.texts(args))
	e.lua.Push(e.lua.NewFunctionFromProto(run))
	if err := e.lua.PCall(0, 1, nil); err != nil {
		return nil, fmt.Errorf("ERR script: %w", err)
	}
	answer := e.lua.Get(-1)
	e.lua.Pop(1)
	return heard(answer), nil
}

// protos keeps compiled scripts for all engines: worlds come and go, and scripts do not.
var protos sync.Map

func compiled(source string) (*lua.FunctionProto, error) {
	if known, ok := protos.Load(source); ok {
		return known.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "script")
	if err != nil {
		return nil, err
	}
	made, err := lua.Compile(chunk, "script")
	if err != nil {
		return nil, err
	}
	protos.Store(source, made)
	return made, nil
}

func (e *Engine) texts(all []string) *lua.LTable {
	t := e.lua.CreateTable(len(all), 0)
	for _, one := range all {
		t.Append(lua.LString(one))
	}
	return t
}

// heard is what a script answers, as clients hear it: numbers are cut to whole ones, and a list ends at the first nil.
func heard(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
		return nil
	case *lua.LTable:
		list := []any{}
		for i := 1; v.RawGetInt(i) != lua.LNil; i++ {
			list = append(list, heard(v.RawGetInt(i)))
		}
		return list
	}
	return nil
}

// word is an argument of a command as Redis reads it from a script: whole numbers as such, others with 17 digits.
func word(v lua.LValue) string {
	n, ok := v.(lua.LNumber)
	if !ok {
		return v.String()
	}
	if f := float64(n); f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(float64(n), 'g', 17, 64)
}

// call is redis.call: an error ends the script.
func (e *Engine) call(l *lua.LState) int {
	answer, err := e.do(wordsOf(l))
	if err != nil {
		l.RaiseError("%s", err)
	}
	l.Push(answer)
	return 1
}

// pcall is redis.pcall: an error is a table with its text.
func (e *Engine) pcall(l *lua.LState) int {
	answer, err := e.do(wordsOf(l))
	if err != nil {
		failed := l.NewTable()
		failed.RawSetString("err", lua.LString(err.Error()))
		answer = failed
	}
	l.Push(answer)
	return 1
}

func wordsOf(l *lua.LState) []string {
	words := make([]string, l.GetTop())
	for i := range words {
		words[i] = word(l.Get(i + 1))
	}
	return words
}

// do is one command, and what a script hears of it: nothing is false.
func (e *Engine) do(words []string) (lua.LValue, error) {
	now := e.now()
	if words[0] == "TIME" {
		t := e.lua.CreateTable(2, 0)
		t.Append(lua.LString(strconv.FormatInt(now/1_000_000, 10)))
		t.Append(lua.LString(strconv.FormatInt(now%1_000_000, 10)))
		return t, nil
	}
	name := words[1]
	held, ok := e.data[name]
	if ok && held.expires != 0 && held.expires <= now/1000 {
		delete(e.data, name)
		held, ok = value{}, false
	}
	if ok && held.kind() != kindOf(words[0]) && words[0] != "SET" && words[0] != "DEL" &&
		words[0] != "PEXPIRE" {
		return nil, errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")
	}
	if kindOf(words[0]) == 'Z' {
		return e.doSorted(words, held)
	}
	switch words[0] {
	case "GET":
		return textOr(held.text, ok), nil
	case "SET":
		made := value{text: words[2]}
		if len(words) > 3 {
			ms, err := strconv.ParseInt(words[4], 10, 64)
			if words[3] != "PX" || err != nil || ms <= 0 {
				return nil, fmt.Errorf("ERR invalid expire time in 'set' command: %v", words[3:])
			}
			made.expires = now/1000 + ms
		}
		e.data[name] = made
		return lua.LTrue, nil
	case "DEL":
		delete(e.data, name)
		return count(ok), nil
	case "PEXPIRE":
		ms, err := strconv.ParseInt(words[2], 10, 64)
		if held.expires = now/1000 + ms; ok && err == nil {
			e.data[name] = held
		}
		return count(ok), err
	case "HGET":
		text, has := held.hash[words[2]]
		return textOr(text, has), nil
	case "HSET":
		made := maps.Clone(held.hash) // a snapshot may hold it
		if made == nil {
			made = map[string]string{}
		}
		made[words[2]] = words[3]
		e.data[name] = value{hash: made, expires: held.expires}
		return count(true), nil
	case "HDEL":
		made := maps.Clone(held.hash)
		delete(made, words[2])
		if e.data[name] = (value{hash: made, expires: held.expires}); len(made) == 0 {
			delete(e.data, name)
		}
		return count(len(made) < len(held.hash)), nil
	case "HGETALL":
		t := e.lua.NewTable()
		for _, field := range slices.Sorted(maps.Keys(held.hash)) {
			t.Append(lua.LString(field))
			t.Append(lua.LString(held.hash[field]))
		}
		return t, nil
	}
	return nil, fmt.Errorf("ERR unknown command '%s'", words[0])
}

func textOr(text string, ok bool) lua.LValue {
	if !ok {
		return lua.LFalse
	}
	return lua.LString(text)
}

func count(is bool) lua.LValue {
	if is {
		return lua.LNumber(1)
	}
	return lua.LNumber(0)
}

// Snapshot is all that the server holds.
func (e *Engine) Snapshot() map[string]value {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.data)
}

// Become has the server hold what a snapshot does, nothing if it is nil, and know no script.
func (e *Engine) Become(data map[string]value) {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.scripts)
	if e.data = maps.Clone(data); e.data == nil {
		e.data = map[string]value{}
	}
}

// Forget has the server know no script, as SCRIPT FLUSH does.
func (e *Engine) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.scripts)
}

// Sweep drops what has expired, as a server does in the background.
func (e *Engine) Sweep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now() / 1000
	maps.DeleteFunc(e.data, func(_ string, v value) bool { return v.expires != 0 && v.expires <= now })
}

// Close ends the interpreter, after the script that runs.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lua.Close()
}
