package edge_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/wasm"
)

const decisions = 1_000_000

var seed = flag.Uint64("seed", 0, "repeat the schedule of this `seed`; 0 makes a new one")

// step is one operation: a bucket with another shape, full, or a take.
type step struct {
	shape     *rate.Shape
	now, cost int64
}

// answer is what became of a take: the bucket after it, and what is told of it.
type answer struct {
	Debt, Stamp, Remaining, Retry, Reset, Allowed, Never int64
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// schedule makes steps until so many takes are in them, and what Go answers to each.
func schedule(rng *rand.Rand, takes int) (steps []step, answers []answer) {
	magnitude := func() int64 { return rng.Int64N(1<<62) >> rng.IntN(62) }
	for len(answers) < takes {
		shape := anyShape(rng, magnitude)
		steps = append(steps, step{shape: &shape})
		var state bucket.State
		now := rng.Int64() >> rng.IntN(63)
		token := max(1, int64(shape.TimeToFull(shape.Unit)))
		for range 200 {
			switch rng.IntN(12) {
			case 0:
				now = add(now, -magnitude())
			case 1:
				now = add(now, magnitude())
			case 2:
				now = add(state.Stamp, token-1+rng.Int64N(3))
			case 3:
				now = add(state.FullAt(shape), rng.Int64N(3)-1)
			case 4, 5, 6:
			default:
				now = add(now, rng.Int64N(token)+rng.Int64N(3))
			}
			cost := 1 + rng.Int64N(min(shape.Burst(), 10))
			switch rng.IntN(12) {
			case 0:
				cost = 0
			case 1:
				cost = shape.Burst()
			case 2:
				cost = add(shape.Burst(), 1+magnitude())
			case 3:
				cost = -magnitude()
			case 4:
				cost = rng.Int64N(add(shape.Burst(), 1))
			}
			var o bucket.Outcome
			state, o = state.Take(now, shape, cost)
			steps = append(steps, step{now: now, cost: cost})
			answers = append(answers, answer{state.Debt, state.Stamp, o.Remaining, int64(o.RetryAfter),
				int64(o.ResetAfter), bit(o.Allowed), bit(o.Never)})
		}
	}
	return steps, answers
}

// anyShape is that of a limit as people write it, or as nobody does.
func anyShape(rng *rand.Rand, magnitude func() int64) rate.Shape {
	primes := []int64{1, 2, 3, 7, 13, 97, 997, 65_537, 999_983, 1_000_003, 2_147_483_647}
	periods := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, 999_999_937}
	for {
		limit := rate.Limit{Tokens: primes[rng.IntN(len(primes))], Per: periods[rng.IntN(len(periods))],
			Burst: 1 + rng.Int64N(2000)}
		switch rng.IntN(4) {
		case 0:
			limit.Burst = 1 + magnitude()
		case 1:
			limit = rate.Limit{Tokens: 1 + magnitude(), Per: time.Duration(1 + magnitude()), Burst: 1 + magnitude()}
		}
		if shape, err := rate.Compile(limit); err == nil {
			return shape
		}
	}
}

// add stays at the ends of an int64.
func add(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// TestSameDecisions has the library, the module in wazero, the module in Node and the program
// that is extracted from the proofs make the same million random decisions, and compares every
// number that each of them tells.
func TestSameDecisions(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with: go test ./edge -run %s -seed %d", t.Name(), *seed)
	steps, want := schedule(rand.New(rand.NewPCG(*seed, 1)), decisions)
	var allowed, never, coarse int64
	tick := int64(0)
	for i, n := 0, 0; i < len(steps); i++ {
		if steps[i].shape != nil {
			tick = steps[i].shape.Tick
			continue
		}
		allowed, never = allowed+want[n].Allowed, never+want[n].Never
		coarse += bit(tick > 1)
		n++
	}
	t.Logf("%d decisions: %d allowed, %d never, %d by ticks above a nanosecond", len(want), allowed, never, coarse)
	if least := min(allowed, int64(len(want))-allowed, never, coarse); least < int64(len(want))/50 {
		t.Error("this shows too little")
	}
	t.Run("oracle", func(t *testing.T) { t.Parallel(); compare(t, steps, want, fromOracle(t, steps)) })
	t.Run("wazero", func(t *testing.T) {
		t.Parallel()
		compare(t, steps, want, inWazero(t, wasm.Core(), steps, len(want)))
	})
	t.Run("Node", func(t *testing.T) { t.Parallel(); compare(t, steps, want, inNode(t, steps)) })
}

func compare(t *testing.T, steps []step, want, got []answer) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d answers to %d takes", len(got), len(want))
	}
	n, shape := 0, (*rate.Shape)(nil)
	for _, s := range steps {
		if s.shape != nil {
			shape = s.shape
			continue
		}
		if got[n] != want[n] {
			t.Fatalf("seed %d, take %d of %d at %d under %+v: %+v, want %+v", *seed, n, s.cost, s.now, *shape, got[n],
				want[n])
		}
		n++
	}
}

func inWazero(t *testing.T, module []byte, steps []step, takes int) []answer {
	r := wazero.NewRuntime(t.Context())
	defer r.Close(t.Context())
	m, err := r.Instantiate(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	at, err := m.ExportedFunction("at_bucket").Call(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	view, ok := m.Memory().Read(uint32(at[0]), 80) // it goes with the memory, which does not grow
	if !ok {
		t.Fatal("the bucket is not in memory")
	}
	order, take, stack := binary.LittleEndian, m.ExportedFunction("take"), make([]uint64, 2)
	word := func(i int) int64 { return int64(order.Uint64(view[8*i:])) }
	answers := make([]answer, 0, takes)
	for _, s := range steps {
		if s.shape != nil {
			for i, v := range []int64{s.shape.Drain, s.shape.Unit, s.shape.Capacity, s.shape.Tick, 0, 0} {
				order.PutUint64(view[8*i:], uint64(v))
			}
			continue
		}
		stack[0], stack[1] = uint64(s.now), uint64(s.cost)
		if err := take.CallWithStack(t.Context(), stack); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer{word(4), word(5), word(6), word(7), word(8), int64(order.Uint32(view[72:])),
			int64(order.Uint32(view[76:]))})
	}
	return answers
}

func inNode(t *testing.T, steps []step) []answer {
	dir := t.TempDir()
	var b []byte
	for _, s := range steps {
		row := [5]int64{1, s.now, s.cost}
		if s.shape != nil {
			row = [5]int64{0, s.shape.Drain, s.shape.Unit, s.shape.Capacity, s.shape.Tick}
		}
		for _, v := range row {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
	}
	module, list := filepath.Join(dir, "core.wasm"), filepath.Join(dir, "steps")
	for file, content := range map[string][]byte{module: wasm.Core(), list: b} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/core.mjs", module, list)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	answers := make([]answer, len(out)/56)
	if err := binary.Read(bytes.NewReader(out), binary.LittleEndian, answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

// fromOracle asks the program that proofs/ extracts; its oracle.ml says what it reads and writes.
func fromOracle(t *testing.T, steps []step) []answer {
	oracle, err := filepath.Abs("../../proofs/_build/oracle")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(oracle); err != nil {
		t.Fatalf("%v: run `make proofs`, which checks the proofs and extracts it", err)
	}
	cmd := exec.CommandContext(t.Context(), oracle)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- writeSteps(in, steps) }()
	var answers []answer
	lines, i := bufio.NewScanner(out), 0
	for ; lines.Scan(); i++ {
		if steps[i].shape != nil {
			continue
		}
		// an answer is allowed, remaining, retry, reset and never; then come debt and stamp
		var n [7]int64
		for j, field := range bytes.Fields(lines.Bytes()) {
			if n[j], err = strconv.ParseInt(string(field), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		answers = append(answers, answer{n[5], n[6], n[1], n[2], n[3], n[0], n[4]})
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the oracle fails: %v", err)
	}
	return answers
}

func writeSteps(to io.WriteCloser, steps []step) error {
	w := bufio.NewWriterSize(to, 1<<16)
	var b []byte
	for _, s := range steps {
		numbers := []int64{s.now, s.cost}
		b = append(b[:0], "take 0"...)
		if s.shape != nil {
			b = append(b[:0], "bucket 0"...)
			numbers = []int64{s.shape.Drain, s.shape.Unit, s.shape.Capacity, s.shape.Tick}
		}
		for _, n := range numbers {
			b = strconv.AppendInt(append(b, ' '), n, 10)
		}
		w.Write(append(b, '\n'))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return to.Close()
}
