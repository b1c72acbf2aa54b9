package edge_test

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// A host of proxy-wasm, as far as the filter uses it: workers with an instance each, and one store of shared values, as
// proxy-wasm-cpp-host (Envoy's) has it. It calls the instance back for memory before it writes a value.

// Statuses of the ABI.
const (
	hostOK          = 0
	hostNotFound    = 1
	hostBadArgument = 2
	hostMismatch    = 8
	hostInternal    = 10
	pauseStream     = 1
	requestHeaders  = 0
	responseHeaders = 2
)

type shared struct {
	mu     sync.Mutex
	values map[string]*sharedValue
	wrong  int // how many writes came too late
}

type sharedValue struct {
	value []byte
	cas   uint32
}

// worker is one instance, and the stream that it is busy with.
type worker struct {
	t      testing.TB
	m      api.Module
	shared *shared
	now    func() int64

	fields   [3]map[string][]string // by header map
	peer     string
	context  uint64 // whose turn it is
	gone     map[uint64]bool
	notes    map[uint64][]byte // of each stream
	answered *answered
	counters map[string]int64
	names    []string
	logged   []string
	fails    map[string]bool // host calls that fail
	missing  string          // a pseudo-header that requests are without
	calls    int
}

// answered is a local response.
type answered struct {
	status uint32
	body   string
	fields map[string]string
}

func newShared() *shared { return &shared{values: map[string]*sharedValue{}} }

// start begins a worker. It reports what proxy_on_configure says of a configuration of so many bytes.
func start(t testing.TB, module []byte, s *shared, now func() int64, configuration int) (*worker, bool) {
	t.Helper()
	w := &worker{t: t, shared: s, now: now, counters: map[string]int64{}, fails: map[string]bool{},
		notes: map[uint64][]byte{}, gone: map[uint64]bool{}}
	r := wazero.NewRuntime(context.Background())
	t.Cleanup(func() { r.Close(context.Background()) })
	w.imports(r)
	m, err := r.InstantiateWithConfig(context.Background(), module, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	w.m = m
	if m.ExportedFunction("proxy_abi_version_0_2_1") == nil {
		t.Fatal("the module does not say which ABI it has")
	}
	w.call("proxy_on_context_create", 1, 0)
	if w.call("proxy_on_vm_start", 1, 0) != 1 {
		t.Fatal("proxy_on_vm_start refuses")
	}
	return w, w.call("proxy_on_configure", 1, uint64(configuration)) == 1
}

func (w *worker) call(name string, args ...uint64) uint64 {
	got, err := w.m.ExportedFunction(name).Call(context.Background(), args...)
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	if len(got) == 0 {
		return 0
	}
	return got[0]
}

func (w *worker) read(at, n uint64) []byte {
	b, ok := w.m.Memory().Read(uint32(at), uint32(n))
	if !ok {
		w.t.Fatalf("the module names memory that it has not: %d bytes at %d", n, at)
	}
	return slices.Clone(b)
}

// give hands a value to the module, in memory that it is asked for.
func (w *worker) give(value []byte, at, length uint64) uint64 {
	place := w.call("proxy_on_memory_allocate", uint64(len(value)))
	if place == 0 || !w.m.Memory().Write(uint32(place), value) {
		return hostInternal
	}
	w.m.Memory().WriteUint32Le(uint32(at), uint32(place))
	w.m.Memory().WriteUint32Le(uint32(length), uint32(len(value)))
	return hostOK
}

// imports defines what the filter asks of its host.
func (w *worker) imports(r wazero.Runtime) {
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	env := r.NewHostModuleBuilder("env")
	wasi := r.NewHostModuleBuilder("wasi_snapshot_preview1")
	define := func(b wazero.HostModuleBuilder, name string, types []api.ValueType, f func(a []uint64) uint64) {
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			w.calls++
			if w.fails[name] {
				stack[0] = hostInternal
				return
			}
			args := slices.Clone(stack[:len(types)])
			for i, kind := range types {
				if kind == i32 {
					args[i] = uint64(uint32(args[i])) // the upper half is anything
				}
			}
			stack[0] = f(args)
		}), types, []api.ValueType{i32}).Export(name)
	}
	ints := func(n int) []api.ValueType { return slices.Repeat([]api.ValueType{i32}, n) }
	define(env, "proxy_log", ints(3), func(a []uint64) uint64 {
		w.logged = append(w.logged, string(w.read(a[1], a[2])))
		return hostOK
	})
	define(env, "proxy_get_header_map_value", ints(5), func(a []uint64) uint64 {
		values, ok := w.fields[a[0]][string(w.read(a[1], a[2]))]
		if !ok {
			return hostNotFound
		}
		return w.give([]byte(strings.Join(values, ",")), a[3], a[4])
	})
	define(env, "proxy_add_header_map_value", ints(5), func(a []uint64) uint64 {
		name := string(w.read(a[1], a[2]))
		w.fields[a[0]][name] = append(w.fields[a[0]][name], string(w.read(a[3], a[4])))
		return hostOK
	})
	define(env, "proxy_get_property", ints(4), func(a []uint64) uint64 {
		path := string(w.read(a[0], a[1]))
		if path == "source\x00address" && w.peer != "" {
			return w.give([]byte(w.peer), a[2], a[3])
		}
		if note, ok := w.notes[w.context]; ok && path == "headgate" {
			return w.give(note, a[2], a[3])
		}
		return hostNotFound
	})
	define(env, "proxy_set_property", ints(4), func(a []uint64) uint64 {
		w.notes[w.context] = w.read(a[2], a[3])
		return hostOK
	})
	define(env, "proxy_set_effective_context", ints(1), func(a []uint64) uint64 {
		if w.gone[a[0]] {
			return hostBadArgument
		}
		w.context = a[0]
		return hostOK
	})
	define(env, "proxy_get_shared_data", ints(5), func(a []uint64) uint64 {
		w.shared.mu.Lock()
		v, ok := w.shared.values[string(w.read(a[0], a[1]))]
		if !ok {
			w.shared.mu.Unlock()
			return hostNotFound
		}
		value, cas := v.value, v.cas
		w.shared.mu.Unlock()
		w.m.Memory().WriteUint32Le(uint32(a[4]), cas)
		return w.give(value, a[2], a[3])
	})
	define(env, "proxy_set_shared_data", ints(5), func(a []uint64) uint64 {
		name, value, cas := string(w.read(a[0], a[1])), w.read(a[2], a[3]), uint32(a[4])
		w.shared.mu.Lock()
		defer w.shared.mu.Unlock()
		v, ok := w.shared.values[name]
		if !ok {
			v = new(sharedValue)
			w.shared.values[name] = v
		}
		if cas != 0 && cas != v.cas {
			w.shared.wrong++
			return hostMismatch
		}
		v.value, v.cas = value, v.cas+1
		return hostOK
	})
	define(env, "proxy_send_local_response", ints(8), func(a []uint64) uint64 {
		w.answered = &answered{uint32(a[0]), string(w.read(a[3], a[4])), pairs(w.t, w.read(a[5], a[6]))}
		return hostOK
	})
	define(env, "proxy_define_metric", ints(4), func(a []uint64) uint64 {
		w.names = append(w.names, string(w.read(a[1], a[2])))
		w.m.Memory().WriteUint32Le(uint32(a[3]), uint32(len(w.names)-1))
		return hostOK
	})
	define(env, "proxy_increment_metric", []api.ValueType{i32, i64}, func(a []uint64) uint64 {
		w.counters[w.names[a[0]]] += int64(a[1])
		return hostOK
	})
	define(wasi, "clock_time_get", []api.ValueType{i32, i64, i32}, func(a []uint64) uint64 {
		w.m.Memory().WriteUint64Le(uint32(a[2]), uint64(w.now()))
		return hostOK
	})
	define(wasi, "random_get", ints(2), func(a []uint64) uint64 {
		for i := range a[1] {
			w.m.Memory().WriteByte(uint32(a[0]+i), byte(37*i+11))
		}
		return hostOK
	})
	for _, b := range []wazero.HostModuleBuilder{env, wasi} {
		if _, err := b.Instantiate(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// pairs reads serialised fields, strictly: the lengths are right, a 0 is behind each text, and nothing is left.
func pairs(t testing.TB, b []byte) map[string]string {
	t.Helper()
	order := binary.LittleEndian
	n := int(order.Uint32(b))
	fields, at := map[string]string{}, 4+8*n
	next := func(length uint32) string {
		text := string(b[at : at+int(length)])
		if at += int(length) + 1; b[at-1] != 0 {
			t.Fatalf("no 0 behind %q", text)
		}
		return text
	}
	for i := range n {
		name := next(order.Uint32(b[4+8*i:]))
		fields[name] = next(order.Uint32(b[8+8*i:]))
	}
	if at != len(b) {
		t.Fatalf("%d bytes behind the fields", len(b)-at)
	}
	return fields
}

// ask sends a request through the filter, and its response if it passes: then the status is 0, and the fields are those
// that the response has been given.
func (w *worker) ask(method, target, peer string, fields ...string) answered {
	if a := w.request(2, method, target, peer, fields...); a.status != 0 {
		return a
	}
	return w.response(2)
}

// request begins a stream; the status is 0 if it passes.
func (w *worker) request(context uint64, method, target, peer string, fields ...string) answered {
	w.fields = [3]map[string][]string{{":method": {method}, ":path": {target}}, nil, {}}
	for i := 0; i < len(fields); i += 2 {
		w.fields[requestHeaders][fields[i]] = append(w.fields[requestHeaders][fields[i]], fields[i+1])
	}
	delete(w.fields[requestHeaders], w.missing)
	w.peer, w.answered, w.context = peer, nil, context
	delete(w.notes, context)
	if w.call("proxy_on_request_headers", context, uint64(len(w.fields[0])), 1) == pauseStream {
		if w.answered == nil {
			return answered{status: 1} // held, without an answer
		}
		return *w.answered
	}
	if w.answered != nil {
		w.t.Fatal("a request passes and is answered")
	}
	return answered{}
}

// response is what the response of a stream has been given.
func (w *worker) response(context uint64) answered {
	w.context, w.fields[responseHeaders] = context, map[string][]string{}
	w.call("proxy_on_response_headers", context, 0, 1)
	a := answered{fields: map[string]string{}}
	for name, values := range w.fields[responseHeaders] {
		a.fields[name] = strings.Join(values, ", ")
	}
	return a
}
