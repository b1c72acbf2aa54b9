package decisions

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/problem"
)

// PathAdmission is where API servers of Kubernetes ask, as a validating admission webhook: by POST with an
// AdmissionReview of admission.k8s.io/v1 about one request that would change something. It is there with
// Options.Admission.
//
// The request becomes one of a method for its operation and a target for its resource:
//
//	CREATE, UPDATE, DELETE, and OPEN for Kubernetes' CONNECT, which HTTP means a tunnel by
//	/GROUP/RESOURCE[/SUBRESOURCE]                       GROUP is core where Kubernetes writes none
//	/GROUP/namespaces/NAMESPACE/RESOURCE[/SUBRESOURCE]  in a namespace
//
// Versions are left out: all of a resource's are one budget. The caller is the user that the API server has
// authenticated; its project is for Admission.Project to say. A refusal has the code 429 and
// details.retryAfterSeconds, which the API server tells its client by Retry-After as well.
//
// A dry run is told what would become of it and takes nothing, as a webhook with sideEffects: NoneOnDryRun
// promises. A review that is sent again has the same answer and takes nothing either.
const PathAdmission = "/admission"

// Admission is how API servers of Kubernetes are answered.
type Admission struct {
	// Groups are those groups of users that are projects, so that rules may be made for them. A user in several
	// is in the one that is named first, one in none in no project. Default none.
	Groups []string

	// Timeout bounds a decision. It is to be below timeoutSeconds of the webhook. Default 800 ms.
	Timeout time.Duration
}

// AdmissionTemplates declare every request that an API server can ask about; more specific ones may be declared
// beside them, for limits of their own.
func AdmissionTemplates() (all []string) {
	for _, operation := range []string{"CREATE", "UPDATE", "DELETE", "OPEN"} {
		for _, path := range []string{"/{group}/{resource}", "/{group}/{resource}/{subresource}",
			"/{group}/namespaces/{namespace}/{resource}",
			"/{group}/namespaces/{namespace}/{resource}/{subresource}"} {
			all = append(all, operation+" "+path)
		}
	}
	return all
}

// Bounds of an AdmissionReview.
const (
	maxReview    = 16 << 20 // bytes: an API server takes 3 MiB of a client, and sends the object before as well
	maxReviewKey = 64 << 10 // of a text that is read, such as a user's name
	maxDepth     = 10_000   // which is what API servers bound it by

	defaultAdmissionTimeout = 800 * time.Millisecond
)

var operations = map[string]string{"CREATE": "CREATE", "UPDATE": "UPDATE", "DELETE": "DELETE", "CONNECT": "OPEN"}

// review is what an AdmissionReview says that is looked at: not the objects.
type review struct {
	version, kind               string
	uid                         string
	group, resource, sub, space string
	operation                   string
	user                        string
	project                     int // of the groups that are projects, the place of the first; none beyond them
	dry                         bool
}

// reviewStatus is the Status of an answer, as metav1.Status has it.
type reviewStatus struct {
	Status  string         `json:"status"`
	Message string         `json:"message"`
	Reason  string         `json:"reason"`
	Code    int            `json:"code"`
	Details *reviewDetails `json:"details,omitempty"`
}

type reviewDetails struct {
	RetryAfterSeconds int64 `json:"retryAfterSeconds"`
}

type reviewResponse struct {
	UID     string        `json:"uid"`
	Allowed bool          `json:"allowed"`
	Status  *reviewStatus `json:"status,omitempty"`
}

// admit answers an API server.
func (d *door) admit(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem.Write(w, r, problem.Details{Status: http.StatusMethodNotAllowed, Detail: "This is asked by POST."})
		return
	}
	o := d.options.Admission
	v, err := readReview(http.MaxBytesReader(w, r.Body, maxReview), o.Groups)
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		d.options.Failed(Incomplete, err)
		problem.Write(w, r, problem.Details{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("The review is longer than %d bytes.", maxReview),
		})
		return
	}
	var q *Question
	if err == nil {
		q, err = v.question(d.peer(r).String(), o.Groups)
	}
	if err != nil {
		d.incomplete(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(o.Timeout, defaultAdmissionTimeout))
	defer cancel()
	decide := func() (answer []byte, keep bool) {
		a := d.answers.Ask(ctx, q)
		return v.answer(&a), a.Status != http.StatusServiceUnavailable // which another try may find mended
	}
	// No key of a program's has a quote in it.
	about := fmt.Appendf(nil, "%q %q %q %q %t", q.Method, q.Target, q.User.ID, q.User.Project, v.dry)
	answer, err := d.kept.answer(ctx, `"`+v.uid, about, decide)
	switch {
	case errors.Is(err, errAnother):
		d.incomplete(w, r, errors.New("request.uid was that of another request within ten minutes"))
	case err != nil:
		problem.Write(w, r, problem.Details{Status: http.StatusServiceUnavailable, Detail: "No answer came in time."})
	default:
		reply(w, answer)
	}
}

// question is what v asks about, by a server at an address.
func (v *review) question(peer string, groups []string) (*Question, error) {
	if v.version != "admission.k8s.io/v1" || v.kind != "AdmissionReview" {
		return nil, fmt.Errorf("the body is a %.40q of %.60q, want an AdmissionReview of admission.k8s.io/v1",
			v.kind, v.version)
	}
	if v.uid == "" || len(v.uid) > maxOnceKey {
		return nil, fmt.Errorf("request.uid has %d bytes, want 1 to %d", len(v.uid), maxOnceKey)
	}
	method, known := operations[v.operation]
	if !known {
		return nil, fmt.Errorf("request.operation is %.40q, want CREATE, UPDATE, DELETE or CONNECT", v.operation)
	}
	if v.user == "" {
		return nil, errors.New("request.userInfo.username is missing, want that of the user")
	}
	target := "/" + cmp.Or(v.group, "core")
	for _, part := range []struct {
		name, prefix, value string
		needed              bool
	}{
		{"request.resource.group", "", v.group, false},
		{"request.namespace", "/namespaces/", v.space, false},
		{"request.resource.resource", "/", v.resource, true},
		{"request.subResource", "/", v.sub, false},
	} {
		switch {
		case part.value == "" && !part.needed:
			continue
		case !isName(part.value):
			return nil, fmt.Errorf("%s is %.60q, want a name in Kubernetes: letters, digits, - and .",
				part.name, part.value)
		}
		if part.prefix != "" {
			target += part.prefix + part.value
		}
	}
	q := &Question{Method: method, Target: target, Client: peer, User: &User{ID: v.user}, dry: v.dry}
	if v.project < len(groups) {
		q.User.Project = groups[v.project]
	}
	if len(v.user) > maxUser { // names of users are as long as an issuer makes them
		sum := sha256.Sum256([]byte(v.user))
		q.User.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	return q, q.Check()
}

// isName reports whether s may be one of Kubernetes' names that stand in paths; "." and ".." may not.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && (c != '.' || i == 0) {
			return false
		}
	}
	return s != "" && len(s) <= 253
}

// answer is what v is answered where a was decided.
func (v *review) answer(a *Answer) []byte {
	r := reviewResponse{UID: v.uid, Allowed: a.Allowed}
	if !a.Allowed {
		r.Status = &reviewStatus{Status: "Failure", Code: a.Status, Reason: "Forbidden", Message: v.words(a)}
		switch a.Status {
		case http.StatusTooManyRequests:
			r.Status.Reason = "TooManyRequests"
		case http.StatusServiceUnavailable:
			r.Status.Reason = "ServiceUnavailable"
		}
		if after, ok := a.Header["Retry-After"]; ok {
			var s int64
			if _, err := fmt.Sscan(after, &s); err == nil {
				r.Status.Details = &reviewDetails{max(1, min(s, math.MaxInt32))} // where the API server holds it
			}
		}
	}
	return inJSON(map[string]any{"apiVersion": v.version, "kind": v.kind, "response": r})
}

// words say to whoever sent the request why it is refused.
func (v *review) words(a *Answer) string {
	var p struct {
		Title  string `json:"title"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(a.Problem, &p) == nil && p.Title != "" {
		return strings.TrimSuffix(p.Title+": "+p.Detail, ": ")
	}
	return cmp.Or(strings.TrimSpace(a.Body), a.Reason)
}

// readReview reads an AdmissionReview and keeps nothing of its objects, however long they are.
func readReview(body io.Reader, groups []string) (*review, error) {
	v := &review{project: math.MaxInt}
	in := &jsonReader{in: bufio.NewReaderSize(body, 4<<10)}
	text := func(to *string) func() error {
		return func() (err error) { *to, err = in.text(maxReviewKey); return err }
	}
	err := in.object(map[string]func() error{
		"apiVersion": text(&v.version),
		"kind":       text(&v.kind),
		"request": func() error {
			return in.object(map[string]func() error{
				"uid": text(&v.uid), "subResource": text(&v.sub), "namespace": text(&v.space),
				"operation": text(&v.operation),
				"resource": func() error {
					return in.object(map[string]func() error{"group": text(&v.group), "resource": text(&v.resource)})
				},
				"userInfo": func() error {
					return in.object(map[string]func() error{
						"username": text(&v.user),
						"groups": func() error {
							return in.list(func() error {
								name, err := in.text(maxReviewKey)
								for i, group := range groups {
									if group == name {
										v.project = min(v.project, i)
									}
								}
								return err
							})
						},
					})
				},
				"dryRun": func() (err error) { v.dry, err = in.boolean(); return err },
			})
		},
	})
	if err == nil {
		err = in.end()
	}
	if err != nil {
		return nil, fmt.Errorf("the body is no AdmissionReview: %w", err)
	}
	return v, nil
}
