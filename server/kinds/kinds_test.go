package kinds_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/server/kinds"
)

// TestNamesPeopleSay: a kind is found by the name of what is built on it, and who says another one is told what to say.
func TestNamesPeopleSay(t *testing.T) {
	for name, want := range map[string]string{
		"starlette": "starlette", "fastapi": "starlette", "FastAPI": "starlette", "spring-boot": "spring",
	} {
		if k, err := kinds.Find(name); err != nil || k.Kind != want {
			t.Errorf("%q is %q, %v, want %q", name, k.Kind, err, want)
		}
	}
	for name, want := range map[string]string{
		"node": "express, express4, fastify or koa", "rails": "not measured", "expres": "perhaps express;",
		"fastap": "perhaps fastapi;", "iis": "one of nginx, ", "": "one of nginx, ",
	} {
		if k, err := kinds.Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v, want an error that says %q", name, k.Kind, err, want)
		}
	}
}
