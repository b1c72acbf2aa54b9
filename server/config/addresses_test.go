package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

func TestAddressDefaults(t *testing.T) {
	c, err := read(t, whole+"proxy_protocol: {from: [10.0.0.0/8]}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	want := config.ProxyProtocol{From: []string{"10.0.0.0/8"}, Required: true, Timeout: 5 * time.Second}
	if got := c.ProxyProtocol; got.Required != want.Required || got.Timeout != want.Timeout || !got.On() {
		t.Errorf("proxy_protocol = %+v, want %+v", got, want)
	}
	if c.ClientAddress.Strategy != "trusted_ranges" || c.IPv4Prefix != 32 || c.IPv6Prefix != 64 ||
		len(c.Warnings()) != 0 {
		t.Errorf("config = %+v with warnings %q", c, c.Warnings())
	}
}

func TestAddressFaults(t *testing.T) {
	for text, want := range map[string]string{
		"client_address: {strategy: leftmost}":                     `client_address.strategy is "leftmost", want trusted_ranges, trusted_count or single_header`,
		"client_address: {strategy: trusted_count}":                `client_address.proxies is "0", want 1 to 64`,
		"client_address: {strategy: trusted_count, proxies: 65}":   `client_address.proxies is "65", want 1 to 64`,
		"client_address: {proxies: 2}":                             `client_address.proxies is "2", want none: only strategy trusted_count counts proxies`,
		"client_address: {header: X-Real-IP}":                      `client_address.header is "X-Real-IP", want none: only strategy single_header reads it`,
		"client_address: {strategy: single_header}":                `client_address.header is "", want the name of a header such as CF-Connecting-IP`,
		"client_address: {strategy: single_header, header: Via}":   `client_address.header is "Via", want a header that holds one address`,
		"client_address: {strategy: single_header, header: X_R}":   `client_address.header is "X_R", want a name without underscores`,
		"client_address: {strategy: single_header, header: CF-IP}": `trusted_proxies is "", want the networks whose CF-IP is true`,
		"client_address: {strategy: single_header, header: K}\napi_keys: {header: " +
			"k}": `client_address.header is "K", want another one than api_keys.header`,
		"proxy_protocol: {from: [nonsense]}":                 `proxy_protocol.from is "nonsense", want a network`,
		"proxy_protocol: {from: [0.0.0.0/0]}":                `proxy_protocol.from is "0.0.0.0/0", want the networks of your proxies`,
		"proxy_protocol: {required: false}":                  `proxy_protocol.from is "", want the networks of the balancers`,
		"proxy_protocol: {timeout: 0s}":                      `proxy_protocol.timeout is "0s", want 1ms to 1m0s`,
		"ipv4_prefix: 33":                                    `ipv4_prefix is "33", want 1 to 32`,
		"nat64_prefixes: [10.0.0.0/8]":                       `nat64_prefixes is "10.0.0.0/8", want an IPv6 prefix such as 2001:db8:64::/96`,
		"nat64_prefixes: ['2001:db8::/60']":                  `nat64_prefixes is "2001:db8::/60", want 32, 40, 48, 56, 64 or 96 bits`,
		"nat64_prefixes: ['2001:db8::/32', '2001:db8::/32']": `nat64_prefixes is "2001:db8::/32", want each prefix once`,
		"region_files: ['']":                                 `region_files is "", want the path of a file`,
		"region_files: [a.csv, a.csv]":                       `region_files is "a.csv", want the path of a file, each once`,
	} {
		c, err := read(t, whole+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Complete = %v, want %q", text, err, want)
		}
	}
}

// TestWarnings: what a configuration may say, and should say with open eyes.
func TestWarnings(t *testing.T) {
	for text, want := range map[string][]string{
		"trusted_proxies: [10.0.0.0/8, 'fd00::/16']": nil,
		"client_address: {strategy: trusted_count, proxies: 2}": {
			"trusted_proxies is empty, so whoever reaches this listener other than through 2 proxies"},
		"client_address: {strategy: trusted_count, proxies: 2}\ntrusted_proxies: [10.0.0.0/8]": nil,
		"trusted_proxies: [8.0.0.0/7, '2000::/3']": {
			"trusted_proxies 8.0.0.0/7: more", "trusted_proxies 2000::/3: more"},
		"proxy_protocol: {from: [128.0.0.0/1]}": {
			"proxy_protocol.from 128.0.0.0/1: more"},
		"proxy_protocol: {from: [10.1.0.0/16]}\ntrusted_proxies: [192.0.2.1, 10.0.0.0/8]": {
			"proxy_protocol.from 10.1.0.0/16: trusted_proxies has 10.0.0.0/8"},
		"proxy_protocol: {from: [10.1.0.0/16], required: false}": {
			"proxy_protocol.required false: whoever reaches this listener past the balancer"},
		"ipv6_prefix: 128": {"ipv6_prefix 128: whoever has a /64, as every host has, has 2^64 budgets"},
		"ipv6_prefix: 72":  {"has 256 budgets"},
		"ipv6_prefix: 24":  {"all customers of a provider share one budget"},
		"ipv4_prefix: 16":  {"ipv4_prefix 16: 65536 addresses share one budget"},
	} {
		c, err := read(t, whole+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := c.Warnings()
		if len(got) != len(want) {
			t.Errorf("%s: warnings %q, want %d", text, got, len(want))
			continue
		}
		for i := range want {
			if !strings.Contains(got[i].String(), want[i]) {
				t.Errorf("%s: the warning is %q, want %q", text, got[i], want[i])
			}
		}
	}
}
