package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/adaptive"
)

func TestAdaptiveIsFilledIn(t *testing.T) {
	c, err := readText(t, "adaptive: [{endpoints: [GET /a, GET /b], slo: 200ms}, "+
		"{endpoints: [GET /c], slo: 1s, floor: 0.5}]\n")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []adaptive.Settings{
		{SLO: 200 * time.Millisecond, Floor: 102},
		{SLO: time.Second, Floor: 512},
	} {
		if got := c.Adaptive[n].Settings(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestAdaptiveIsChecked(t *testing.T) {
	var many []string
	for n := range 257 {
		many = append(many, fmt.Sprint("GET /", n))
	}
	_, err := readText(t, `adaptive:
  - {slo: 1us, floor: 0.001}
  - {endpoints: [GET /a, GET /a], slo: 31s, floor: 1.5}
  - {endpoints: [`+strings.Join(many, ", ")+`]}
  - {endpoints: [GET /0], slo: 1s, floor: .nan}
`)
	for _, want := range []string{
		`adaptive[0].endpoints is "", want an endpoint at least`, `adaptive[0].slo is "1µs", want 1ms to 30s`,
		`adaptive[0].floor is "0.001", want 0.01 to 1`, `adaptive[1].endpoints is "GET /a", want each endpoint once`,
		`adaptive[1].slo is "31s"`, `adaptive[1].floor is "1.5"`, `adaptive[2].slo is "0s"`,
		`adaptive[3].endpoints is "GET /0", want each endpoint once`, `adaptive[3].floor is "NaN"`,
		`adaptive is "258 endpoints", want at most 256`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Complete says\n%v\nwant %s", err, want)
		}
	}
	if _, err := readText(t, "listen: none\ndecisions: {listen: \"127.0.0.1:8082\"}\n"+
		"adaptive: [{endpoints: [GET /a], slo: 1s}]\n"); err == nil ||
		!strings.Contains(err.Error(), `adaptive is "1 endpoints", want nothing`) {
		t.Errorf("where nobody sees the API: %v", err)
	}
}
