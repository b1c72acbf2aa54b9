package main

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReadWorkload(t *testing.T) {
	got, err := readWorkload(strings.NewReader("0\t3\t0,2.5,1\n1\t1\t4\n"))
	want := workload{{0, time.Second, 2500 * time.Millisecond}, {4 * time.Second}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"", "0\t1", "0\t2\t1", "0\t1\tsoon", "0\t1\t-1", "0\t1\tNaN", "0\t1\t1e99"} {
		if w, err := readWorkload(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read as %v, want an error", text, w)
		}
	}
}
