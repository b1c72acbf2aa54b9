package pace_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate-io/headgate/pace"
)

func Example() {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Retry-After-Ms", "20")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "a report")
	}))
	defer server.Close()

	// begin: client
	client := &http.Client{Transport: pace.New(pace.Options{
		Algorithm: pace.Auto{Pause: pace.AP{First: 10 * time.Millisecond}}, // a test does not wait for 30 s
		OnAttempt: func(a pace.Attempt) { fmt.Println(a.Number, a.Status, a.Refused) },
	})}
	response, err := client.Get(server.URL + "/v1/reports/7")
	// end: client
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	// Output:
	// 1 429 true
	// 2 200 false
	// 200 OK
}

func ExampleNew() {
	refused := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused = !refused; refused {
			w.Header().Set("RateLimit", `"reports";r=0;t=1;headgate-slot=20`) // in 20 ms
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "a report")
	}))
	defer server.Close()

	// begin: lines
	client := &http.Client{Transport: pace.New(pace.Options{})}
	// end: lines
	response, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	// Output: 200 OK
}
