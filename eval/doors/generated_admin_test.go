//go:build unix

package doors

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admin "github.com/headgate-io/headgate/clients/admin-go"
	"github.com/headgate-io/headgate/eval/harness"
)

// begin: admin client
// operator is a client of the admin API that shows a token.
func operator(server, token string) (*admin.ClientWithResponses, error) {
	return admin.NewClientWithResponses(server,
		admin.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		}))
}

// signUp makes an API key for a customer, and a limit such as 100/min. The text of the key is reported this once.
func signUp(ctx context.Context, api *admin.ClientWithResponses, customer, limit string) (key string, err error) {
	rule := admin.Rule{Endpoint: "default", Project: &customer, Limit: &admin.Rule_Limit{}}
	if err := rule.Limit.FromRateText(limit); err != nil {
		return "", err
	}
	set, err := api.SetPolicyWithResponse(ctx, nil, rule)
	switch {
	case err != nil:
		return "", err
	case set.JSON200 == nil:
		return "", adminProblem(set.ApplicationproblemJSONDefault, set.Status())
	}
	made, err := api.CreateKeyWithResponse(ctx, admin.CreateKeyJSONRequestBody{Project: customer, Name: "first"})
	switch {
	case err != nil:
		return "", err
	case made.JSON201 == nil:
		return "", adminProblem(made.ApplicationproblemJSONDefault, made.Status())
	}
	return made.JSON201.Key, nil
}

// end: admin client

// adminProblem is why there is no answer.
func adminProblem(p *admin.Problem, status string) error {
	if p == nil {
		return &noAnswer{status}
	}
	return &noAnswer{p.Title + ": " + p.Detail}
}

// The generated client of the admin API makes rules and keys that count, reads pages, and is told what is wrong.
func TestGeneratedAdmin(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "routes.txt"), "GET /v1/items/{id}\n")
	write(t, filepath.Join(dir, "headgate.yaml"), "upstream: "+harness.NewUpstream(t).URL+"\nroutes: [routes.txt]\n"+
		"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nadmin_auth: always\nsecret_file: headgate.secret\n")
	harness.Run(t, dir, "policy", "set", "default", "20", "--config", "headgate.yaml")
	for role, flag := range map[string]string{"ops": "write", "eyes": "read"} {
		token, err := harness.Output(dir, "admin", "token", "create", role, "--role", flag, "--config", "headgate.yaml")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, role), token)
	}
	gateway := harness.Serve(t, dir, "--config", "headgate.yaml")
	as := func(role string) *admin.ClientWithResponses {
		token, err := os.ReadFile(filepath.Join(dir, role))
		if err != nil {
			t.Fatal(err)
		}
		api, err := operator(gateway.Admin, strings.TrimSpace(string(token)))
		if err != nil {
			t.Fatal(err)
		}
		return api
	}
	api := as("ops")
	key, err := signUp(t.Context(), api, "acme", "2/h")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []int{200, 200, 429} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", gateway.URL+"/v1/items/7", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", key)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("request %d with the new key is answered %d, want %d", n, answer.StatusCode, want)
		}
	}
	customer := "acme"
	keys, err := as("eyes").ListKeysWithResponse(t.Context(), &admin.ListKeysParams{Project: &customer})
	if err != nil || keys.JSON200 == nil || len(keys.JSON200.Keys) != 1 || keys.JSON200.Keys[0].Name != "first" {
		t.Fatalf("%v, %s, want the key that was made", err, keys.Body)
	}
	one := 1
	page, err := api.ListPoliciesWithResponse(t.Context(), &admin.ListPoliciesParams{Limit: &one})
	if err != nil || page.JSON200 == nil {
		t.Fatalf("%v, %s", err, page.Body)
	}
	listing, err := page.JSON200.AsListing()
	if err != nil || len(listing.Policies) != 1 || listing.Next == nil {
		t.Fatalf("%v, %+v, want one of two rules", err, listing)
	}
	if limit, err := listing.Policies[0].Limit.AsTokens(); err != nil || limit != 20 {
		t.Errorf("the limit is %d, %v, want 20", limit, err)
	}
	for who, wrong := range map[string]struct {
		api         *admin.ClientWithResponses
		limit, want string
	}{
		"who may only look": {as("eyes"), "2/h", "The admin token lacks the role for this"},
		"a limit of none":   {api, "0/h", "The request is not one that the API takes"},
	} {
		if _, err := signUp(t.Context(), wrong.api, "acme", wrong.limit); err == nil ||
			!strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v, want %q", who, err, wrong.want)
		}
	}
}
