package config_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

// A reload takes over what it can, and nothing of the rest.
func TestReloaded(t *testing.T) {
	before := config.Default()
	next := before
	next.Routes, next.Headers.Legacy, next.Log.Level, next.UpstreamTimeout = []string{"routes.txt"}, "epoch",
		"debug", time.Second
	next.MaxWait, next.Keys.Header = time.Second, "X-Key"
	next.Costs = map[string]int64{"GET /a": 2}
	// which was plain HTTP before
	next.Listen, next.Log.Format, next.Settle.MaxOutstanding, next.TLS.CertFile = "127.0.0.1:1", "json", 7, "cert.pem"
	next.TLS.KeyFile = "key.pem"
	next.Staleness.MaxStale = 2 * time.Hour
	next.Clients.MaxHeaders, next.Clients.MaxStreams, next.Traces.OneIn, next.ProxyProtocol.From = 64, 7, 10, []string{
		"192.0.2.1",
	}
	merged, changed, restart := before.Reloaded(next)
	slices.Sort(changed)
	slices.Sort(restart)
	want := "api_keys.header clients.max_headers costs headers.legacy log.level max_wait routes traces.one_in " +
		"upstream_timeout"
	if got := strings.Join(changed, " "); got != want {
		t.Errorf("changed: %s, want %s", got, want)
	}
	want = "clients.max_streams listen log.format policy_max_stale proxy_protocol.from settle.max_outstanding " +
		"tls.cert_file tls.key_file"
	if got := strings.Join(restart, " "); got != want {
		t.Errorf("need a restart: %s, want %s", got, want)
	}
	conf := before
	conf.MaxWait, conf.Keys.Header, conf.UpstreamTimeout = next.MaxWait, "X-Key", time.Second
	conf.Routes, conf.Headers.Legacy, conf.Log.Level, conf.Costs = next.Routes, "epoch", "debug", next.Costs
	conf.Clients.MaxHeaders, conf.Traces.OneIn = 64, 10
	if !reflect.DeepEqual(merged, conf) {
		t.Errorf("merged is %+v, want %+v", merged, conf)
	}
	if again, changed, _ := merged.Reloaded(merged); len(changed) > 0 || !reflect.DeepEqual(again, merged) {
		t.Errorf("the same again changes %v", changed)
	}
}

// Whatever reloads is a setting that there is.
func TestReloadableSettingsExist(t *testing.T) {
	var names []string
	var visit func(prefix string, of reflect.Type)
	visit = func(prefix string, of reflect.Type) {
		for i := range of.NumField() {
			tag, options, _ := strings.Cut(of.Field(i).Tag.Get("yaml"), ",")
			switch field := of.Field(i).Type; {
			case options == "inline":
				visit(prefix, field)
			case field.Kind() == reflect.Struct:
				names = append(names, prefix+tag)
				visit(prefix+tag+".", field)
			default:
				names = append(names, prefix+tag)
			}
		}
	}
	visit("", reflect.TypeFor[config.Config]())
	for _, name := range config.ReloadableSettings() {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no setting", name)
		}
	}
}
