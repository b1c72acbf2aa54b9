package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
)

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// tokenGateway starts the real gateway with an RSA and an EC key for tokens,
// and a rule of so many requests an hour.
func tokenGateway(t testing.TB, limit string) *harness.Gateway {
	t.Helper()
	rsaKey, err1 := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	point, err := ecKey.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "kid": "r", "n": encode(rsaKey.N.Bytes()), "e": "AQAB"},
		{"kty": "EC", "kid": "e", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])},
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := `tokens: {jwks_file: keys.json, algorithms: [RS256, ES256], issuer: "https://issuer.example", audiences: [api]}`
	for name, text := range map[string]string{"keys.json": string(keys), "headgate.yaml": conf + "\n",
		"routes.txt": "GET /x\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	harness.Run(t, dir, "policy", "set", "default", limit, "--per", "1h")
	harness.Run(t, dir, "policy", "set", "UNKNOWN", "5")
	return harness.Serve(t, dir, "--config", "headgate.yaml", "--routes", "routes.txt", "--upstream",
		harness.NewUpstream(t).URL)
}

// credentials are what attackers send, each time another one.
func credentials() map[string]func(i int) string {
	claims := func(i int, exp int64) string {
		return encode(fmt.Appendf(nil,
			`{"iss":"https://issuer.example","aud":"api","sub":"user%d","exp":%d,"scope":%q}`, i, exp,
			strings.Repeat("read ", 30)))
	}
	soon := time.Now().Unix() + 3600
	token := func(header string, payload string, signature int) string {
		sig := make([]byte, signature)
		_, _ = rand.Read(sig)
		return "Bearer " + encode([]byte(header)) + "." + payload + "." + encode(sig)
	}
	return map[string]func(int) string{
		"nothing":      func(int) string { return "" },
		"other scheme": func(i int) string { return "Basic " + strings.Repeat("x", 640) + strconv.Itoa(i) },
		"forged RS256": func(i int) string { return token(`{"alg":"RS256","kid":"r"}`, claims(i, soon), 256) },
		"forged ES256": func(i int) string { return token(`{"alg":"ES256","kid":"e"}`, claims(i, soon), 64) },
		"unknown kid": func(i int) string {
			return token(fmt.Sprintf(`{"alg":"RS256","kid":"k%d"}`, i), claims(i, soon), 256)
		},
		"expired":          func(i int) string { return token(`{"alg":"RS256","kid":"r"}`, claims(i, 1), 256) },
		"alg none":         func(i int) string { return token(`{"alg":"none"}`, claims(i, soon), 0) },
		"random text":      func(i int) string { return "Bearer " + strings.Repeat("x", 640) + strconv.Itoa(i) },
		"8 KiB":            func(i int) string { return "Bearer " + strings.Repeat("x", 8000) + strconv.Itoa(i) },
		"8 KiB, other":     func(i int) string { return "Basic " + strings.Repeat("x", 8000) + strconv.Itoa(i) },
		"made-up API keys": func(i int) string { return "Bearer hg_" + fmt.Sprintf("%049d", i) },
	}
}

// BenchmarkInvalidCredentials measures what a request costs the gateway in CPU,
// all in, by what it shows: the process's own count of CPU seconds over whole
// HTTP requests from one address. Kinds alternate, and medians of the rounds are
// reported, in µs a request and as ratio to a request that shows nothing.
//
//	go test ./attacks -run '^$' -bench InvalidCredentials -benchtime 15x
func BenchmarkInvalidCredentials(b *testing.B) {
	for name, limit := range map[string]string{"passed on": "1000000000", "refused": "1"} {
		b.Run(name, func(b *testing.B) {
			g := tokenGateway(b, limit)
			kinds := credentials()
			names := make([]string, 0, len(kinds))
			for kind := range kinds {
				names = append(names, kind)
			}
			slices.Sort(names)
			cost := map[string][]float64{}
			const requests = 10_000 // the process counts in hundredths of a second
			send(b, g.URL, requests, kinds["nothing"])
			for b.Loop() {
				for _, kind := range names {
					before := cpu(b, g)
					send(b, g.URL, requests, kinds[kind])
					cost[kind] = append(cost[kind], (cpu(b, g)-before)/requests*1e6)
				}
			}
			base := median(cost["nothing"])
			for _, kind := range names {
				m := median(cost[kind])
				b.ReportMetric(m/base, strings.ReplaceAll(kind, " ", "-")+"-ratio")
				b.Logf("%-18s %6.1f µs a request, %.2f×", kind, m, m/base)
			}
		})
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// cpu is the CPU time that the gateway has used, in seconds.
func cpu(t testing.TB, g *harness.Gateway) float64 {
	t.Helper()
	seconds, err := strconv.ParseFloat(g.Metric(t, "process_cpu_seconds_total"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

var flooder = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}

// send makes n requests over eight connections.
func send(t testing.TB, url string, n int, credential func(int) string) {
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := g; i < n; i += 8 {
				r, err := http.NewRequest("GET", url+"/x", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if text := credential(i); text != "" {
					r.Header.Set("Authorization", text)
				}
				response, err := flooder.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
	all.Wait()
}

// TestA5ForgedTokensAreTheAddress sends every kind of invalid credential, each
// time another one: together they get what one address gets.
func TestA5ForgedTokensAreTheAddress(t *testing.T) {
	g := tokenGateway(t, "40")
	counts := map[int]int{}
	i := 0
	kinds := credentials()
	// In an order: were the forged ones the first, more of them would pass than are verified of an address, and the
	// rest is charged to a second bucket, that of all unverified ones.
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		credential := kinds[kind]
		for range 30 {
			i++
			r, err := http.NewRequest("GET", g.URL+"/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			if text := credential(i); text != "" {
				r.Header.Set("Authorization", text)
			}
			response, err := flooder.Do(r)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			response.Body.Close()
			counts[response.StatusCode]++
		}
	}
	if counts[200] != 40 || counts[200]+counts[429] != i {
		t.Errorf("of %d requests: %v, want 40 that pass", i, counts)
	}
	if n := g.Metric(t, "headgate_buckets_created_total"); n != "1" {
		t.Errorf("%s buckets were created, want 1", n)
	}
}
