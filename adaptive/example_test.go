package adaptive_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
)

// Rates that follow an API: whoever sends requests to it says when, and when they are answered.
func ExampleTable() {
	// begin: adaptive
	table := &adaptive.Table{}
	table.Use(map[string]adaptive.Settings{
		"GET /work": {SLO: 100 * time.Millisecond, Floor: adaptive.Whole / 10},
	}, time.Now().UnixNano())
	limiter, err := headgate.New(headgate.Options{
		Rules:    []string{"GET /work 1000/s burst 20 by endpoint", "default 100/s"},
		Adaptive: table,
	})
	// end: adaptive
	if err != nil {
		log.Fatal(err)
	}
	request := headgate.Request{Method: "GET", Target: "/work", Peer: netip.MustParseAddr("192.0.2.7")}
	d := limiter.Check(context.Background(), request)
	exchange := limiter.Exchange(&d)
	exchange.Sent()
	exchange.Answered(false) // as the answer begins
	status, _ := limiter.Adaptive(&d)
	fmt.Println(float64(status.Multiplier)/adaptive.Whole, status.Words())
	// Output: 1 too few answers to judge the API by
}
