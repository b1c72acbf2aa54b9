package buckettest_test

import (
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
)

func TestTwinKeepsTheContract(t *testing.T) {
	buckettest.Run(t, func(testing.TB) bucket.Store { return new(buckettest.Twin) })
}
