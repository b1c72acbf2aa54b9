package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/deadline"
)

type name struct{}

// TestAsTheLibrarys has a Context and context.WithTimeout live through the same, and compares what
// they say, whether or not they were asked before.
func TestAsTheLibrarys(t *testing.T) {
	cases := []struct {
		name   string
		parent time.Duration // its own time, 0 for none
		leaves time.Duration // when the parent is cancelled, 0 for never
		ends   time.Duration // when it is ended itself, 0 for never
		want   error         // after 20 ms, of which it has 10
	}{
		{"its time is up", 0, 0, 0, context.DeadlineExceeded},
		{"its time is shorter than the parent's", time.Second, 0, 0, context.DeadlineExceeded},
		{"the parent's time is shorter", 5 * time.Millisecond, 0, 0, context.DeadlineExceeded},
		{"the parent leaves", 0, 5 * time.Millisecond, 0, context.Canceled},
		{"it is ended", 0, 0, 5 * time.Millisecond, context.Canceled},
		{"it is ended when its time is up", 0, 0, 15 * time.Millisecond, context.DeadlineExceeded},
	}
	for _, c := range cases {
		for _, asked := range []bool{false, true} {
			if late := c.ends > 10*time.Millisecond; late && !asked {
				continue // see TestEndedUnasked
			}
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent, leave := context.WithCancel(context.WithValue(t.Context(), name{}, "theirs"))
					defer leave()
					if c.parent > 0 {
						var stop context.CancelFunc
						parent, stop = context.WithTimeout(parent, c.parent)
						defer stop()
					}
					own := deadline.After(parent, 10*time.Millisecond)
					defer own.End()
					twin, end := context.WithTimeout(parent, 10*time.Millisecond)
					defer end()
					at := map[time.Duration]func(){c.leaves: leave, c.ends: func() { own.End(); end() }}
					delete(at, 0)
					for step := range 20 {
						now := time.Duration(step) * time.Millisecond
						if do := at[now]; do != nil {
							do()
						}
						synctest.Wait()
						if asked && own.Err() != twin.Err() {
							t.Errorf("after %v it says %v, want %v", now, own.Err(), twin.Err())
						}
						time.Sleep(time.Millisecond)
					}
					until, ok := own.Deadline()
					if want, _ := twin.Deadline(); !ok || !until.Equal(want) {
						t.Errorf("deadline %v, want %v", until, want)
					}
					if err := own.Err(); !errors.Is(err, c.want) || err != twin.Err() {
						t.Errorf("in the end it says %v, want %v", err, twin.Err())
					}
					select {
					case <-own.Done():
					default:
						t.Error("it is not done")
					}
					if context.Cause(own) != context.Cause(twin) || own.Value(name{}) != "theirs" {
						t.Errorf("cause %v and value %v, want %v and the parent's", context.Cause(own),
							own.Value(name{}), context.Cause(twin))
					}
				})
			})
		}
	}
}

func TestChildrenEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, how := range []string{"ended", "time is up"} {
			own := deadline.After(t.Context(), time.Millisecond)
			child, stop := context.WithCancel(own)
			if err := errors.Join(own.Err(), child.Err()); err != nil {
				t.Fatalf("%s: it begins with %v", how, err)
			}
			if how == "ended" {
				own.End()
			}
			<-child.Done()
			if child.Err() != own.Err() {
				t.Errorf("%s: the child says %v, want %v", how, child.Err(), own.Err())
			}
			stop()
			own.End()
		}
	})
}

// When the parent's time is shorter, it is done after the parent, never before: else a client's
// hurry would look like a fault of the store.
func TestParentIsDoneFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			parent, leave := context.WithTimeout(t.Context(), time.Millisecond)
			own := deadline.After(parent, time.Second)
			<-own.Done()
			if parent.Err() == nil {
				t.Error("it is done before the parent")
			}
			own.End()
			leave()
		}
	})
}

func TestEndedUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := deadline.After(t.Context(), time.Millisecond)
		time.Sleep(2 * time.Millisecond)
		own.End()
		<-own.Done()
		if err := own.Err(); err != context.Canceled {
			t.Errorf("asked only after its end it says %v, want %v", err, context.Canceled)
		}
	})
}

func TestLeftIsOnlyTheParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, leave := context.WithCancel(t.Context())
		own := deadline.After(parent, time.Millisecond)
		time.Sleep(2 * time.Millisecond)
		own.End()
		select {
		case <-own.Left():
			t.Error("the parent has left, want that only the time is up")
		default:
		}
		leave()
		<-own.Left()
	})
	if left := deadline.After(context.Background(), time.Hour).Left(); left != nil {
		t.Errorf("Left of one whose parent never ends is %v, want nil", left)
	}
}

// What it is for: asking whether it is done takes nothing but itself.
func TestAllocatesOnce(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		c := deadline.After(context.Background(), time.Hour)
		if c.Err() != nil {
			t.Error(c.Err())
		}
		c.End()
	}); n > 1 {
		t.Errorf("it allocates %v times, want once at most", n)
	}
}
