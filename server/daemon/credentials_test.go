package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/daemon"
)

// TestNoCredentialHidesAnother: tokens, keys, certificates and signatures at once, by chance, while directories of
// agents come and go, the secrets of tokens are rotated, and one caller after the other is blocked: whoever is blocked
// is so whatever else he shows, each of the others pays for each request that it is shown with, and for no other, and
// the address for those that show nothing good.
func TestNoCredentialHidesAnother(t *testing.T) {
	for _, engine := range []string{"net/http", "fast"} {
		t.Run(strings.ReplaceAll(engine, "/", "_"), func(t *testing.T) { noCredentialHidesAnother(t, engine) })
	}
}

func noCredentialHidesAnother(t *testing.T, engine string) {
	const limit, each, requests = 45, 20, 160 // of a budget, between two blocks, in all
	first, second, third := newSigningAgent(t), newSigningAgent(t), newSigningAgent(t)
	second.label = "b"
	secrets := [2][]byte{tokenSecret, []byte(strings.Repeat("another! ", 4))}
	other := filepath.Join(t.TempDir(), "other.secret")
	if err := os.WriteFile(other, secrets[1], 0o600); err != nil {
		t.Fatal(err)
	}
	mutual, client := daemon.MutualTLS(t)
	var files [2]string
	r := newReloading(t, []policy.Rule{{Endpoint: policy.Default, Limit: limit, Per: 24 * time.Hour}}, withSecret(t),
		withAgents(first, second), mutual, func(c *config.Config) {
			c.Engine, c.SignedAgents.Tier, files = engine, "", [2]string{c.Tokens.SecretFiles[0], other}
		})
	status, text := call(t, "POST", r.admin+"/v1/keys", `{"project":"acme","name":"ci"}`, "Content-Type", asJSON)
	var made struct{ ID, Key string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != 201 {
		t.Fatalf("a key: %d %s", status, text)
	}
	reload := func() {
		if status, body := call(t, "POST", r.admin+"/v1/reload", ""); status != 200 {
			t.Errorf("reload: %d %s", status, body)
		}
	}
	clients := [2]*http.Client{client(""), client("billing")}
	ask := func(by *http.Client, header []string) int {
		q, err := http.NewRequest("GET", "https"+strings.TrimPrefix(r.gate, "http")+"/v1/items/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		answer, err := by.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	const address = 5 // among those who pay; those before it are the bits of what is shown
	names := [address]string{"token:alice", "api_key:" + made.ID, "signed_agent:" + first.name,
		"signed_agent:" + second.name, "certificate:billing"}
	over := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
			}
			r.edit(func(c *config.Config) {
				c.SignedAgents.Directories = c.SignedAgents.Directories[:2:2]
				if i%2 == 0 {
					withAgents(third)(c)
				}
			})
			reload()
		}
	})
	rng, paid, seen := rand.New(rand.NewPCG(3, 60)), [address + 1]int{}, map[int]int{}
	good := [2]bool{true, false} // by which secret tokens are
	block := `{"endpoint":"*","mode":"block","subject":%q}`
	for n := range requests {
		blocked := n / each // at the end nobody
		if n%each == 0 && blocked < address {
			if status, body := call(t, "PUT", r.admin+"/v1/policies", fmt.Sprintf(block, names[blocked]),
				"Content-Type", asJSON); status != 200 {
				t.Fatalf("a block: %d %s", status, body)
			}
		}
		if n%5 == 4 { // a new secret beside the old one, then alone, and back
			stage := n / 5 % 4
			good = [2]bool{stage != 1, stage != 3}
			r.edit(func(c *config.Config) {
				c.Tokens.SecretFiles = [][]string{files[:], files[1:], {other, files[0]}, files[:1]}[stage]
			})
			reload()
		}
		var header []string
		shown, by, want, spent := rng.IntN(1<<address), rng.IntN(2), 200, false
		if shown&1 != 0 {
			header = append(header, "Authorization", "Bearer "+
				signed(secrets[by], `{"iss":"me","aud":"api","sub":"alice","exp":%d}`, time.Now().Unix()/300*300+600))
		}
		if shown&2 != 0 {
			header = append(header, "X-Api-Key", made.Key)
		}
		for i, a := range []*signingAgent{first, second} {
			if shown&(4<<i) == 0 {
				continue
			}
			if fields := a.once(); shown&12 == 12 && i == 1 { // as a second member of the same fields
				for k := 1; k < 6; k += 2 {
					header[len(header)-6+k] += ", " + fields[k]
				}
			} else {
				header = append(header, fields...)
			}
		}
		pay := shown
		if !good[by] {
			pay &^= 1
		}
		if pay == 0 {
			pay = 1 << address
		}
		for i := range paid {
			if pay&(1<<i) == 0 {
				continue
			}
			if i == blocked && blocked < address {
				want = 403
			}
			spent = spent || paid[i] == limit
		}
		if want == 200 && spent {
			want = 429
		}
		got := ask(clients[shown>>4], header)
		if got != want {
			t.Errorf("request %d shows %05b, by secret %d of %v, %d is blocked, %v are spent: %d, want %d", n, shown,
				by, good, blocked, paid, got, want)
		}
		seen[got]++
		if got == 200 {
			for i := range paid {
				paid[i] += pay >> i & 1
			}
		}
		if n%each == each-1 && blocked < address {
			query := "?endpoint=*&subject=" + url.QueryEscape(names[blocked])
			if status, body := call(t, "DELETE", r.admin+"/v1/policies"+query, ""); status != 200 && status != 204 {
				t.Fatalf("the end of a block: %d %s", status, body)
			}
		}
	}
	close(over)
	background.Wait()
	all, text := used(t, r.admin)
	for i, name := range names {
		_, id, _ := strings.Cut(name, ":")
		if !slices.ContainsFunc(all.Rows, func(row admin.UsageRow) bool {
			return row.ID == id && int(row.Admitted) == paid[i]
		}) {
			t.Errorf("%s paid for %d requests, and used is %s", name, paid[i], text)
		}
	}
	left := 0
	for left <= limit && ask(clients[0], nil) == 200 {
		left++
	}
	if left != limit-paid[address] {
		t.Errorf("the address paid for %d requests, and has %d left of %d", paid[address], left, limit)
	}
	if paid[address] == 0 || seen[200] == 0 || seen[403] == 0 || seen[429] == 0 {
		t.Errorf("%v were paid for, and answers are %v: that shows little", paid, seen)
	}
}
