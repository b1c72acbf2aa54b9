package decisions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/serve/decisions"
)

// admission is a door for API servers. Every user may create two pods an hour in each namespace it does so in, or three
// as one of tenants; a namespace as a whole is deleted in once, and the rest has room.
func admission(t testing.TB, change ...func(*headgate.Options)) (http.Handler, *trial.Bench, *[]string) {
	t.Helper()
	templates := append(decisions.AdmissionTemplates(), "CREATE /core/namespaces/{namespace}/pods",
		"DELETE /core/namespaces/{namespace}/pods")
	b := trial.New(t, templates, []policy.Rule{
		{Endpoint: "CREATE /core/namespaces/{namespace}/pods", Limit: 2, Per: time.Hour},
		{Endpoint: "CREATE /core/namespaces/{namespace}/pods", Project: "tenants", Limit: 3, Per: time.Hour},
		{
			Endpoint: "DELETE /core/namespaces/{namespace}/pods",
			Subject:  policy.SubjectPath,
			Only:     "path:namespace",
			Limit:    1,
			Per:      time.Hour,
		},
		{Endpoint: policy.Default, Limit: 1000, Per: time.Hour},
	}, change...)
	faults := new([]string)
	var mu sync.Mutex
	h, err := decisions.New(decisions.Options{
		Limiter: b.Limiter, Trusted: netip.Addr.IsLoopback, Limit: httplimit.Options{Methods: b.Table.Allowed},
		Admission: &decisions.Admission{Groups: []string{"tenants", "guests"}},
		Failed: func(f decisions.Fault, err error) {
			mu.Lock()
			defer mu.Unlock()
			*faults = append(*faults, f.String()+": "+err.Error())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, b, faults
}

// about is an AdmissionReview as an API server writes it.
type about struct {
	uid, operation, group, resource, sub, namespace, user, groups, more string
}

func (a about) String() string {
	if a.groups == "" {
		a.groups = `["system:authenticated"]`
	}
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,
		"kind":{"group":%[3]q,"version":"v1","kind":"Thing"},"resource":{"group":%[3]q,"version":"v1","resource":%[4]q},
		"subResource":%[5]q,"requestKind":{"group":"","version":"v1","kind":"Thing"},"name":"a","namespace":%[6]q,
		"operation":%[2]q,"userInfo":{"username":%[7]q,"uid":"1","groups":%[8]s,"extra":{"x":["y"]}},
		"object":{"kind":"Pod","spec":{"uid":["\"}]",{"username":"root"}]}},"oldObject":null,"dryRun":false,"options":null%[9]s}}`,
		a.uid, a.operation, a.group, a.resource, a.sub, a.namespace, a.user, a.groups, a.more)
}

// admit asks, and returns what is answered in short, or the status.
func admit(t testing.TB, h http.Handler, review string) string {
	t.Helper()
	r := httptest.NewRequest("POST", "/admission?timeout=2s", strings.NewReader(review))
	r.RemoteAddr = "127.0.0.1:4711"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 {
		return fmt.Sprint(w.Code)
	}
	var a struct {
		APIVersion, Kind string
		Response         struct {
			UID     string
			Allowed bool
			Status  struct {
				Status, Message, Reason string
				Code                    int
				Details                 struct{ RetryAfterSeconds int }
			}
		}
	}
	in := json.NewDecoder(w.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&a); err != nil {
		t.Fatalf("%v of %s", err, w.Body)
	}
	if a.Kind != "AdmissionReview" || a.APIVersion != "admission.k8s.io/v1" || a.Response.UID == "" {
		t.Errorf("%s is no AdmissionReview", w.Body)
	}
	if s := a.Response.Status; a.Response.Allowed {
		return "yes"
	} else if s.Status != "Failure" || s.Message == "" {
		t.Errorf("status %+v, want a failure and why", s)
	}
	return fmt.Sprintf("%d %s %d", a.Response.Status.Code, a.Response.Status.Reason,
		a.Response.Status.Details.RetryAfterSeconds)
}

func TestAdmission(t *testing.T) {
	h, b, faults := admission(t)
	pods := func(uid, operation, namespace, user, groups string) string {
		return about{uid: uid, operation: operation, resource: "pods", namespace: namespace, user: user,
			groups: groups}.String()
	}
	for _, step := range []struct {
		what, review, want string
	}{
		{"ann's first", pods("1", "CREATE", "a", "ann", ""), "yes"},
		{"the same again is not another", pods("1", "CREATE", "a", "ann", ""), "yes"},
		{"her second, of another namespace", pods("2", "CREATE", "b", "ann", ""), "yes"},
		{"her third", pods("3", "CREATE", "a", "ann", ""), "429 TooManyRequests 1800"},
		{"a refusal again", pods("3", "CREATE", "a", "ann", ""), "429 TooManyRequests 1800"},
		{"bob's", pods("4", "CREATE", "a", "bob", ""), "yes"},
		{"a tenant's", pods("5", "CREATE", "a", "cy", `["x","guests","tenants"]`), "yes"},
		{"a tenant's", pods("6", "CREATE", "a", "cy", `["x","guests","tenants"]`), "yes"},
		{"a tenant's", pods("7", "CREATE", "a", "cy", `["x","guests","tenants"]`), "yes"},
		{"a tenant's fourth", pods("8", "CREATE", "a", "cy", `["x","guests","tenants"]`), "429 TooManyRequests 1200"},
		{"a namespace's", pods("9", "DELETE", "a", "ann", ""), "yes"},
		{"a namespace's, by somebody else", pods("10", "DELETE", "a", "bob", ""), "429 TooManyRequests 3600"},
		{"another's", pods("11", "DELETE", "b", "bob", ""), "yes"},
		{"a version is no other resource", strings.ReplaceAll(pods("12", "CREATE", "a", "ann", ""), `"v1"`, `"v9"`),
			"429 TooManyRequests 1800"},
		{"of the cluster", about{uid: "13", operation: "CREATE", group: "rbac.authorization.k8s.io",
			resource: "clusterroles", user: "ann"}.String(), "yes"},
		{"exec", about{uid: "14", operation: "CONNECT", resource: "pods", sub: "exec", namespace: "a", user: "ann"}.
			String(), "yes"},
	} {
		if got := admit(t, h, step.review); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
	b.Now = b.Now.Add(30 * time.Minute)
	if got := admit(t, h, pods("20", "CREATE", "a", "ann", "")); got != "yes" {
		t.Errorf("after the time that was said: %s, want yes", got)
	}
	if len(*faults) > 0 {
		t.Errorf("told of %v, want no fault", *faults)
	}
}

// A dry run is told the truth and costs nothing: sideEffects of the webhook is NoneOnDryRun.
func TestAdmissionDryRun(t *testing.T) {
	h, _, _ := admission(t)
	ask := func(uid string, dry bool) string {
		return admit(t, h, strings.Replace(about{uid: uid, operation: "CREATE", resource: "pods", namespace: "a",
			user: "ann"}.String(), `"dryRun":false`, fmt.Sprintf(`"dryRun":%t`, dry), 1))
	}
	for i := range 10 {
		if got := ask(fmt.Sprint("dry", i), true); got != "yes" {
			t.Fatalf("dry run %d: %s, want yes", i, got)
		}
	}
	for i, want := range []string{"yes", "yes", "429 TooManyRequests 1800"} {
		if got := ask(fmt.Sprint(i), false); got != want {
			t.Errorf("request %d after dry runs: %s, want %s", i, got, want)
		}
	}
	if got := ask("dry", true); got != "429 TooManyRequests 1800" {
		t.Errorf("a dry run over the limit: %s, want the refusal that it is about", got)
	}
}

// What is no review is refused, which the API server meets as its failurePolicy says; and said.
func TestAdmissionRefuses(t *testing.T) {
	good := about{uid: "1", operation: "CREATE", resource: "pods", namespace: "a", user: "ann"}.String()
	replaced := func(old, with string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("no %s in the review", old)
		}
		return strings.Replace(good, old, with, 1)
	}
	h, _, faults := admission(t)
	for _, c := range []struct{ review, want string }{
		{"", "it ends too early"},
		{good[:len(good)-1], "it ends too early"},
		{good + "x", "something follows it"},
		{"[]", "there is '[' where '{' should be"},
		{"{}", `a "" of "", want an AdmissionReview of admission.k8s.io/v1`},
		{"null", `a "" of "", want`},
		{replaced("io/v1", "io/v1beta1"), `of "admission.k8s.io/v1beta1", want an AdmissionReview of admission.k8s.io/v1`},
		{replaced("AdmissionReview", "Pod"), `a "Pod" of`},
		{`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`, "request.uid has 0 bytes"},
		{replaced(`"uid":"1"`, `"uid":"`+strings.Repeat("1", 256)+`"`), "request.uid has 256 bytes, want 1 to 255"},
		{replaced(`"uid":"1"`, `"uid":1`), `uid: there is '1' where '"' should be`},
		{replaced("CREATE", "PATCH"), `request.operation is "PATCH", want CREATE, UPDATE, DELETE or CONNECT`},
		{replaced("CREATE", "OPEN"), `request.operation is "OPEN"`},
		{replaced(`"ann"`, `""`), "request.userInfo.username is missing"},
		{replaced(`"ann"`, `"ann","username":"bob"`), "username is there twice"},
		{replaced(`"operation"`, `"operation":"DELETE","operation"`), "operation is there twice"},
		{replaced(`"resource":"pods"`, `"resource":""`), "request.resource.resource is \"\", want a name"},
		{replaced(`"resource":"pods"`, `"resource":"pods/../x"`), "request.resource.resource is"},
		{replaced(`"namespace":"a"`, `"namespace":".."`), `request.namespace is ".."`},
		{replaced(`"namespace":"a"`, `"namespace":"%2e"`), "request.namespace is"},
		{replaced(`"namespace":"a"`, `"namespace":"A"`), "request.namespace is"},
		{replaced(`"dryRun":false`, `"dryRun":"true"`), "dryRun: there is '\"', want true or false"},
		{replaced(`"ann"`, `"`+strings.Repeat("a", 65<<10)+`"`), "a text is longer than 65536 bytes"},
		{replaced(`"ann"`, `"a\x"`), "a text is not written as JSON wants it"},
		{replaced(`"oldObject":null`, `"oldObject":`+strings.Repeat("[", 20_000)), "it is more than 10000 deep"},
		{replaced(`"oldObject":null`, `"oldObject":`), "where a value should be"},
		{replaced(`"oldObject":null`, `"oldObject":}`), "where a value should be"},
	} {
		*faults = nil
		if got := admit(t, h, c.review); got != "400" || len(*faults) != 1 || !strings.Contains((*faults)[0], c.want) ||
			len((*faults)[0]) > 400 {
			t.Errorf("%.200s: %s and %.500q, want 400 and %q", c.review, got, *faults, c.want)
		}
	}
	long := replaced(`"oldObject":null`, `"oldObject":"`+strings.Repeat("x", 17<<20)+`"`)
	if got := admit(t, h, long); got != "413" {
		t.Errorf("a review of %d bytes: %s, want 413", len(long), got)
	}
	if got := admit(t, h, good); got != "yes" {
		t.Fatalf("the good one: %s", got)
	}
	if got := admit(t, h, replaced("CREATE", "DELETE")); got != "400" {
		t.Errorf("another request of the same uid: %s, want 400", got)
	}
	r := httptest.NewRequest("GET", "/admission", nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d, want 405", w.Code)
	}
	r = httptest.NewRequest("POST", "/admission", strings.NewReader(good)) // from 192.0.2.1
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 403 {
		t.Errorf("from elsewhere: %d, want 403", w.Code)
	}
	plain, _, _ := door(t)
	if got := admit(t, plain, good); got != "404" {
		t.Errorf("where nobody configured it: %s, want 404", got)
	}
}

// Whatever a user is called, it has one budget, and a key, label or line of no more than usual length.
func TestAdmissionHostileUsers(t *testing.T) {
	h, b, _ := admission(t)
	for i, name := range []string{strings.Repeat("a", 60_000), strings.Repeat("a", 59_999) + "b", "a\nb\x1b[31m",
		"system:serviceaccount:a:b", `"}],"allowed":true`, "\u202eann", "a\x00"} {
		for j, want := range []string{"yes", "yes", "429 TooManyRequests 1800"} {
			text, _ := json.Marshal(name)
			review := strings.Replace(about{uid: fmt.Sprint(i, "-", j), operation: "CREATE", resource: "pods",
				namespace: "a", user: "NAME"}.String(), `"NAME"`, string(text), 1)
			if got := admit(t, h, review); got != want {
				t.Errorf("%.20q, request %d: %s, want %s", name, j, got, want)
			}
		}
	}
	if n := b.Buckets.Stats(b.Now.UnixNano()).Live; n != 7 {
		t.Errorf("%d buckets for 7 users", n)
	}
}

// An API server that sends one review many times at once is answered the same, for one token.
func TestAdmissionRepeated(t *testing.T) {
	h, _, _ := admission(t)
	review := func(uid string) string {
		return about{uid: uid, operation: "CREATE", resource: "pods", namespace: "a", user: "ann"}.String()
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got := admit(t, h, review("1")); got != "yes" {
				t.Errorf("a repeated review: %s, want yes", got)
			}
		})
	}
	all.Wait()
	if got := admit(t, h, review("2")); got != "yes" {
		t.Errorf("the second: %s, want yes: the first was one", got)
	}
	// And many at once take what there is, and no more.
	yes := make(chan bool, 50)
	for i := range 50 {
		all.Go(func() {
			yes <- admit(t, h, strings.ReplaceAll(review(fmt.Sprint("n", i)), `"ann"`, `"bob"`)) == "yes"
		})
	}
	all.Wait()
	close(yes)
	n := 0
	for ok := range yes {
		if ok {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d of 50 at once passed, want 2", n)
	}
}

// While the store cannot answer, the review is answered as the rule says, not the failurePolicy.
func TestAdmissionStoreFailed(t *testing.T) {
	h, _, _ := admission(t, func(o *headgate.Options) { o.Buckets = away{o.Buckets} })
	got := admit(t, h, about{uid: "1", operation: "CREATE", resource: "pods", namespace: "a", user: "ann"}.String())
	if !strings.HasPrefix(got, "503 ServiceUnavailable ") {
		t.Errorf("while the store is away: %s, want 503", got)
	}
}

type away struct{ bucket.Store }

func (away) TryConsume(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error) {
	return false, errors.New("store away")
}

// Objects of whatever length are not kept in memory.
func TestAdmissionHugeObjects(t *testing.T) {
	h, _, _ := admission(t)
	object := `{"data":"` + strings.Repeat("x", 4<<20) + `","list":[` + strings.Repeat(`{"a":1},`, 100_000) + `{}]}`
	short := about{uid: "1", operation: "CREATE", resource: "pods", namespace: "a", user: "ann"}.String()
	review := strings.Replace(short, `"oldObject":null`, `"oldObject":`+object, 1)
	if got := admit(t, h, review); got != "yes" {
		t.Fatalf("a long object: %s, want yes", got)
	}
	n := testing.AllocsPerRun(3, func() {
		r := httptest.NewRequest("POST", "/admission", strings.NewReader(review))
		r.RemoteAddr = "127.0.0.1:4711"
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
	if n > 500 {
		t.Errorf("a review of %d bytes takes %v allocations, want as many as a short one", len(review), n)
	}
}

// FuzzReview: what encoding/json reads as a review is read the same; and what it cannot read is not admitted, but for
// what stands in objects, which nobody looks at.
func FuzzReview(f *testing.F) {
	f.Add(about{uid: "1", operation: "CREATE", resource: "pods", namespace: "a", user: "ann"}.String())
	f.Add(about{uid: "1", operation: "CONNECT", group: "b.c", resource: "pods", sub: "exec", user: "\u00e4\\\"",
		groups: `["tenants",null,"guests"]`, more: `,"x":-1.5e+3`}.String())
	f.Add(`{"request":{"object":[[{}],"\\"],"userInfo":null}}`)
	f.Fuzz(func(t *testing.T, body string) {
		got, err := decisions.ReadReview(strings.NewReader(body), []string{"tenants", "guests"})
		if err != nil {
			return
		}
		var want struct {
			APIVersion, Kind string
			Request          struct {
				UID, SubResource, Namespace, Operation string
				Resource                               struct{ Group, Resource string }
				UserInfo                               struct {
					Username string
					Groups   []string
				}
				DryRun bool
			}
		}
		if json.NewDecoder(strings.NewReader(body)).Decode(&want) != nil {
			return // a fault in what is skipped
		}
		project := math.MaxInt
		for i := range 2 {
			for _, g := range want.Request.UserInfo.Groups {
				if g == []string{"tenants", "guests"}[i] {
					project = min(project, i)
				}
			}
		}
		q := want.Request
		if s := fmt.Sprintf("%q", []any{want.APIVersion, want.Kind, q.UID, q.Resource.Group, q.Resource.Resource,
			q.SubResource, q.Namespace, q.Operation, q.UserInfo.Username, project, q.DryRun}); s != got {
			if !folded(body) {
				t.Errorf("%s\nread  %s\nwant  %s", body, got, s)
			}
		}
	})
}

// folded reports whether body has a name that encoding/json takes for another, which API servers do not write.
func folded(body string) bool {
	in := json.NewDecoder(strings.NewReader(body))
	for {
		token, err := in.Token()
		if err == io.EOF || err != nil {
			return false
		}
		name, _ := token.(string)
		for _, known := range []string{"apiVersion", "kind", "request", "uid", "subResource", "namespace", "operation",
			"resource", "group", "userInfo", "username", "groups", "dryRun"} {
			if name != known && strings.EqualFold(name, known) {
				return true
			}
		}
	}
}
