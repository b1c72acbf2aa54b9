package telemetry_test

import (
	"log"
	"testing"

	"github.com/headgate-io/headgate/pace/telemetry"
)

// The example of docs/telemetry.md, against a listener.
func TestExample(t *testing.T) {
	l := listen(t)
	aggregator := l.LocalAddr().String()
	// begin: report
	client, err := telemetry.New(telemetry.Options{Addr: aggregator, Quota: "api", Secret: secret})
	if err != nil {
		log.Fatal(err)
	}
	client.Report(telemetry.State{Sent: 120, Accepted: 100, Refused: 20, Queue: 31, Congested: true})
	// end: report
	if r, _ := l.report(); r.Sent != 120 || r.Queue != 31 {
		t.Errorf("report %+v", r)
	}
	client.Close(telemetry.State{})
}
