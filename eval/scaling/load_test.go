package main

import (
	"errors"
	"testing"
	"time"
)

func TestSent(t *testing.T) {
	ms := func(from, to int) span {
		return span{time.Duration(from) * time.Millisecond, time.Duration(to) * time.Millisecond}
	}
	s := sent{took: []span{ms(0, 9), ms(100, 105), ms(110, 111), ms(120, 150), ms(200, 900)}}
	for _, c := range []struct {
		p    float64
		want time.Duration
	}{{0, time.Millisecond}, {0.5, 5 * time.Millisecond}, {0.99, 30 * time.Millisecond}, {1, 30 * time.Millisecond}} {
		if got := s.percentile(c.p, 100*time.Millisecond, 200*time.Millisecond); got != c.want {
			t.Errorf("percentile(%v) of what began from 100 to 200 ms = %v, want %v", c.p, got, c.want)
		}
	}
	if got := s.percentile(0.99, time.Second, 2*time.Second); got != 0 {
		t.Errorf("percentile of nothing = %v, want 0", got)
	}
	broken := errors.New("connection reset")
	for _, c := range []struct {
		errors int64
		want   error
	}{{0, nil}, {3, nil}, {4, broken}} {
		if got := (sent{count: 300, errors: c.errors, failed: broken}).err(); !errors.Is(got, c.want) {
			t.Errorf("err() after %d errors in 300 requests = %v, want %v", c.errors, got, c.want)
		}
	}
}

// TestLoadKeepsItsRate sends what was asked, as the spread says.
func TestLoadKeepsItsRate(t *testing.T) {
	var ways []way
	got := make([]int, 2)
	done := make(chan int, 4096)
	for i := range got {
		ways = append(ways, func() (bool, error) { done <- i; return true, nil })
	}
	total := load(300*time.Millisecond, 2000, ways, traffics[1])
	close(done)
	for i := range done {
		got[i]++
	}
	// 600 in all by chance, and fewer where this process does not get to run.
	if total.count != int64(got[0]+got[1]) || total.count > 800 || got[0] <= got[1] {
		t.Errorf("%d were sent, %v over the ways, want at most 800, most of them by the first", total.count, got)
	}
}
