package peer_test

import (
	"fmt"
	"testing"

	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/eval/rivals/peer"
)

func TestNobodyIsDenied(t *testing.T) {
	for _, p := range peer.All() {
		t.Run(p.Name, func(t *testing.T) {
			limiter, err := p.Open(1000)
			if err != nil {
				t.Fatal(err)
			}
			decide := limiter.Worker()
			for i := range 5000 {
				if k := fmt.Sprint("key ", i%1000); !decide(k) {
					t.Fatalf("decision %d on %s: denied, want allowed", i, k)
				}
			}
		})
	}
}

func TestHeadgateKeepsEveryRuleApart(t *testing.T) {
	h, err := peer.OpenHeadgate(memory.Options{MaxBuckets: 1000})
	if err != nil {
		t.Fatal(err)
	}
	decide := h.Rules(3)
	for range 10 {
		if !decide("somebody") {
			t.Fatal("denied, want allowed")
		}
	}
	if live := h.Store.Stats(h.Now()).Live; live != 3 {
		t.Errorf("one key under three rules has %d buckets, want 3", live)
	}
}

func TestFindNamesTheUnknown(t *testing.T) {
	if _, err := peer.Find("headgate"); err != nil {
		t.Error(err)
	}
	if _, err := peer.Find("nobody"); err == nil {
		t.Error(`Find("nobody") = nil error, want one`)
	}
}
