package openapi_test

import (
	"testing"

	"github.com/headgate-io/headgate/server/openapi"
)

func BenchmarkLoad(b *testing.B) {
	for _, d := range documents {
		b.Run(d.file[len("testdata/"):], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := openapi.Load(d.file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
