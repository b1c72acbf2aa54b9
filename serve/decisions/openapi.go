package decisions

import (
	_ "embed"
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/internal/problem"
)

// OpenAPI describes what programs ask in JSON (OpenAPI 3.1).
//
//go:embed openapi.yaml
var OpenAPI []byte

func describe(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		problem.Write(w, r, problem.Details{Status: http.StatusMethodNotAllowed,
			Detail: "The description is asked for by GET."})
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Length", strconv.Itoa(len(OpenAPI)))
	_, _ = w.Write(OpenAPI)
}
