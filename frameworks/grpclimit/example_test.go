package grpclimit_test

import (
	"context"
	"fmt"
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/frameworks/grpclimit"
	"github.com/headgate-io/headgate/identity"
)

func Example() {
	// begin: grpc
	limits := grpclimit.New(grpclimit.Options{
		User: func(ctx context.Context) *identity.User {
			// An interceptor before this one wrote it.
			if names := metadata.ValueFromIncomingContext(ctx, "user"); len(names) == 1 {
				return &identity.User{ID: names[0]}
			}
			return nil
		},
		Messages: true, // of streams, each counts like a call
	})
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary), grpc.ChainStreamInterceptor(limits.Stream))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	// Once all services are registered:
	limiter, err := limits.Open(server, headgate.Options{
		Rules: []string{"POST /grpc.health.v1.Health/Check 5/s", "default 20/s"},
	})
	if err != nil {
		log.Fatal(err)
	}
	// end: grpc
	for _, method := range limiter.Endpoints().All() {
		fmt.Println(method)
	}
	// Output:
	// POST /grpc.health.v1.Health/Check
	// POST /grpc.health.v1.Health/List
	// POST /grpc.health.v1.Health/Watch
}
