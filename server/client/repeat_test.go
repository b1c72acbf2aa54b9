package client_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/client"
)

// A change of a bucket is asked for again when no answer comes, under the key that it has for its
// life; the next has another one.
func TestChangesOfBucketsAreAskedForAgain(t *testing.T) {
	good, cutOff := text(`{"audit":1,"bucket":{}}`), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		text(`{"audit":`)(w, r)
	}
	for name, do := range map[string]func(*client.Client, context.Context,
		admin.BucketRequest) (admin.BucketChange, error){
		"grant": (*client.Client).GrantBucket, "reset": (*client.Client).ResetBucket,
	} {
		for what, lost := range map[string]func(http.ResponseWriter, *http.Request){
			"hung up": hangUp, "cut off": cutOff, "down": problem("unavailable", 503),
			"in use": problem("idempotency-key-in-use", 409),
		} {
			var keys []string
			noting := func(f func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
				return func(w http.ResponseWriter, r *http.Request) {
					keys = append(keys, r.Header.Get("Idempotency-Key"))
					f(w, r)
				}
			}
			server, asked := scripted(t, noting(lost), noting(good), noting(good))
			c, err := client.New(server, "")
			must(t, err)
			for range 2 {
				if done, err := do(c, t.Context(), admin.BucketRequest{}); err != nil || done.Audit != 1 {
					t.Errorf("%s, %s: %+v, %v", name, what, done, err)
				}
			}
			if asked.Load() != 3 || len(keys) != 3 || keys[0] != keys[1] || keys[1] == keys[2] ||
				slices.Contains(keys, "") || len(keys[0]) < 18 {
				t.Errorf("%s, %s: asked %d times under %q, want twice under one key, and then once under another", name,
					what, asked.Load(), keys)
			}
		}
	}
}
