package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

// fleet is gateways on one database and one store.
type fleet struct {
	dir      string
	conf     string             // of each, but for where it is heard
	gossip   func(i int) string // the settings of gossip of the ith that is started
	started  int
	gateways []*harness.Gateway
}

// startFleet starts k gateways before an API, with the rules given, each for the endpoint and with
// the settings of one line; and settings of the store. Over wires, or over none, they hear each other.
func startFleet(k int, upstream, store, settings string, limit int64, rules [][2]string,
	over *wires) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if f.dir, err = os.MkdirTemp("", "headgate-scaling-fleet-"); err != nil {
		return f, err
	}
	var routes, policies strings.Builder
	policies.WriteString("rules:\n")
	for _, r := range rules {
		fmt.Fprintf(&routes, "GET %s\n", r[0])
		fmt.Fprintf(&policies, "  - {endpoint: GET %s, limit: %d, subject: endpoint, %s}\n", r[0], limit, r[1])
	}
	first, err := freeAddress()
	if err != nil {
		return f, err
	}
	f.gossip = func(i int) string {
		if i == 0 {
			return fmt.Sprintf("{listen: %q}", first)
		}
		return fmt.Sprintf("{listen: '127.0.0.1:0', join: [%q]}", first)
	}
	if over != nil {
		f.gossip = over.settings
	}
	f.conf = fmt.Sprintf("upstream: %s\nroutes: [routes.txt]\nstore: {redis: [%q], prefix: s%d%s}\n", upstream, store,
		rand.Uint32(), settings)
	for name, text := range map[string]string{
		"routes.txt":   routes.String(),
		"rules.yaml":   policies.String(),
		"gateway.yaml": f.conf,
		secretName:     secret,
	} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
			return f, err
		}
	}
	if err := harness.Command(f.dir, "policy", "import", "rules.yaml", "--config", "gateway.yaml"); err != nil {
		return f, err
	}
	for range k {
		if err := f.join(); err != nil {
			return f, err
		}
	}
	return f, f.knowEachOther()
}

// secret is what gateways share that hear each other over wires.
const secretName = "gossip.secret"

var secret = strings.Repeat("5ca1ab1e", 8)

// knowEachOther waits until every gateway has heard of all others, by the store and by gossip.
func (f *fleet) knowEachOther() error {
	return errors.Join(f.settled(), f.agree("headgate_gossip_replicas"))
}

// join starts one more gateway.
func (f *fleet) join() error {
	g, err := f.start(f.started)
	f.started++
	if err == nil {
		f.gateways = append(f.gateways, g)
	}
	return err
}

// start starts the ith gateway, as it was before if it has been started already.
func (f *fleet) start(i int) (*harness.Gateway, error) {
	conf := fmt.Sprintf("gateway-%d.yaml", i)
	text := f.conf + "gossip: " + f.gossip(i) + "\n"
	if err := os.WriteFile(filepath.Join(f.dir, conf), []byte(text), 0o600); err != nil {
		return nil, err
	}
	return harness.Start(f.dir, "--config", conf)
}

// stop ends all gateways.
func (f *fleet) stop() {
	for _, g := range f.gateways {
		g.Kill()
	}
	_ = os.RemoveAll(f.dir)
}

// settled waits until every gateway has heard of all others: while they come and go, a limit that
// is divided among them is in other parts.
func (f *fleet) settled() error { return f.agree("headgate_store_split_divisor") }

// agree waits until a metric of every gateway says how many there are.
func (f *fleet) agree(name string) error {
	for _, g := range f.gateways {
		if !harness.Eventually(30*time.Second, func() bool {
			k, err := metric(g, name)
			return err == nil && k == float64(len(f.gateways))
		}) {
			return fmt.Errorf("%s of a gateway is not %d after 30s:\n%s", name, len(f.gateways), g.Log())
		}
	}
	return nil
}

// ways are those through the gateways for a path.
func (f *fleet) ways(client *http.Client, path string) (ways []way) {
	for _, g := range f.gateways {
		ways = append(ways, func() (bool, error) { return get(client, g.URL+path) })
	}
	return ways
}

var metricClient = &http.Client{Timeout: 5 * time.Second}

var errNoMetric = errors.New("there is no such metric")

// metric is the value of a metric without labels.
func metric(g *harness.Gateway, name string) (float64, error) {
	response, err := metricClient.Get(g.Admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s: %w", name, errNoMetric)
}
