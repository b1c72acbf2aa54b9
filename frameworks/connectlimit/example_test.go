package connectlimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/connectlimit"
	"github.com/headgate-io/headgate/httplimit"
)

func Example() {
	mux := http.NewServeMux() // of connect's handlers
	// begin: connect
	endpoints, err := connectlimit.Endpoints("shop.v1.Books")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := headgate.New(headgate.Options{
		Endpoints: endpoints,
		Rules:     []string{"POST /shop.v1.Books/Get 1/h", "default 20/s"},
	})
	if err != nil {
		log.Fatal(err)
	}
	limited, err := connectlimit.Handler(limiter, mux, httplimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// end: connect
	mux.HandleFunc("POST /shop.v1.Books/Get", func(http.ResponseWriter, *http.Request) {})
	for range 2 {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/shop.v1.Books/Get", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		limited.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 false
	// 429 true
}
