package edge_test

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/wasm"
)

// plain is a module of kind wasm.Plain that runs in wazero.
type plain struct {
	t     testing.TB
	m     api.Module
	room  uint32
	calls map[string]api.Function
	stack [5]uint64
}

// run starts a module made by wasm.Build.
func run(t testing.TB, o wasm.Options) *plain {
	t.Helper()
	module, err := wasm.Build(wasm.Plain, o)
	if err != nil {
		t.Fatal(err)
	}
	r := wazero.NewRuntime(context.Background())
	t.Cleanup(func() { r.Close(context.Background()) })
	m, err := r.InstantiateWithConfig(context.Background(), module, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	p := &plain{t: t, m: m, calls: map[string]api.Function{}}
	if p.call("start", 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03) != 1 {
		t.Fatal("start refuses the data")
	}
	p.room = p.call("room")
	return p
}

func (p *plain) call(name string, args ...uint64) uint32 {
	f := p.calls[name]
	if f == nil {
		f = p.m.ExportedFunction(name)
		p.calls[name] = f
	}
	copy(p.stack[:], args)
	if err := f.CallWithStack(context.Background(), p.stack[:max(1, len(args))]); err != nil {
		p.t.Fatalf("%s%v: %v", name, args, err)
	}
	return uint32(p.stack[0])
}

// write puts texts into the room, one after another.
func (p *plain) write(texts ...string) {
	at := p.room
	for _, text := range texts {
		if !p.m.Memory().WriteString(at, text) {
			p.t.Fatal("no room")
		}
		at += uint32(len(text))
	}
}

func (p *plain) told(n uint64) string {
	at, length := p.call("told", n), p.call("length", n)
	b, ok := p.m.Memory().Read(at, length)
	if !ok {
		p.t.Fatalf("text %d is not in memory", n)
	}
	return string(b)
}

func (p *plain) match(method, target string) endpoint.Match {
	p.write(method, target)
	got := p.call("find_endpoint", uint64(len(method)), uint64(len(target)))
	return endpoint.Match{Status: endpoint.Status(got >> 28), Fault: endpoint.Fault(got >> 20 & 0xFF),
		ID: endpoint.ID(got & 0xFFFFF)}
}

func (p *plain) canonical(target string) (string, endpoint.Fault) {
	p.write(target)
	fault := endpoint.Fault(p.call("canon", uint64(len(target))))
	if fault != endpoint.NoFault {
		return "", fault
	}
	return p.told(0), fault
}

// setOf compiles rules for templates.
func setOf(t testing.TB, table *endpoint.Table, rules ...string) *policy.Set {
	t.Helper()
	var doc policy.Document
	for _, line := range rules {
		r, err := policy.ParseRule(line)
		if err != nil {
			t.Fatal(err)
		}
		doc.Rules = append(doc.Rules, r)
	}
	return compile(t, table, doc)
}

func compile(t testing.TB, table *endpoint.Table, doc policy.Document) *policy.Set {
	t.Helper()
	set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: table})
	if set == nil {
		t.Fatal(problems.Err())
	}
	return set
}

// tableOf compiles templates.
func tableOf(t testing.TB, p endpoint.Profile, texts ...string) *endpoint.Table {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range texts {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	table, _, err := endpoint.CompileMost(templates, p)
	if err != nil {
		t.Fatal(err)
	}
	return table
}
