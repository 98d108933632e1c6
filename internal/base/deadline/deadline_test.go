// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

func TestRunReturnsResult(t *testing.T) {
	failure := errors.New("failure")
	got, err := Run(NewPool(1), time.Hour, func() (int, error) { return 1, failure })
	if got != 1 || !errors.Is(err, failure) {
		t.Errorf("found %d, %v", got, err)
	}
}

func TestRunReturnsAtDeadlineWhileWorkHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), make(chan struct{})
		began := time.Now()
		got, err := Run(NewPool(1), time.Second, func() (int, error) {
			defer close(ended)
			<-release
			return 1, nil
		})
		if got != 0 || !errors.Is(err, ErrTimeout) || !errdefs.IsUnavailable(err) || err.Error() != "timed out" {
			t.Errorf("found %d, %v", got, err)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited for %v, want 1s", waited)
		}
		close(release)
		<-ended // the work goes on
		time.Sleep(idleTime)
	})
}

// Exactly one party gets the result: the caller, or late after a timeout. Work that ends at the deadline
// meets either of them first.
func TestResultIsHandedOverAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, takes := range append(slices.Repeat([]time.Duration{time.Second}, 100), time.Millisecond, time.Hour) {
			late := make(chan int, 1)
			got, err := RunOrHandOver(NewPool(1), time.Second, func() (int, error) {
				time.Sleep(takes)
				return 1, nil
			}, func(value int, _ error) { late <- value })
			time.Sleep(takes)
			synctest.Wait()
			if (got == 1) != (err == nil) || (got == 1) == (len(late) == 1) {
				t.Errorf("work of %v: the caller gets %d, %v, and late is called %d times", takes, got, err, len(late))
			}
		}
		time.Sleep(idleTime)
	})
}

func TestRunReturnsPanicAsError(t *testing.T) {
	err := Within(time.Hour, func() error { panic("defect") })
	var p *PanicError
	if !errors.As(err, &p) || p.Value != "defect" || !errdefs.IsInternal(err) || err.Error() != "internal error: defect" {
		t.Errorf("found %v", err)
	}
}

func TestPoolBoundsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(2)
		release := make(chan struct{})
		hang := func() { <-release }
		for range 2 {
			if !p.Go(hang) {
				t.Fatal("the pool refuses work before it is full")
			}
		}
		if p.Busy() != 2 || p.Go(hang) {
			t.Errorf("%d goroutines are busy, and the pool takes more", p.Busy())
		}
		if _, err := Run(p, time.Second, func() (int, error) { return 1, nil }); !errors.Is(err, ErrBusy) || !errdefs.IsUnavailable(err) {
			t.Errorf("found %v, want %v", err, ErrBusy)
		}
		close(release)
		synctest.Wait()
		if p.Busy() != 0 {
			t.Errorf("%d goroutines are busy after the work ended", p.Busy())
		}
		if _, err := Run(p, time.Second, func() (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
		time.Sleep(idleTime)
	})
}

func TestIdleGoroutineTakesMoreWorkAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, p := runtime.NumGoroutine(), NewPool(2)
		for range 3 {
			if _, err := Run(p, time.Second, func() (int, error) { return 1, nil }); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n != 1 {
				t.Errorf("%d goroutines, want 1", n)
			}
		}
		time.Sleep(idleTime)
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n != 0 {
			t.Errorf("%d goroutines after %v, want none", n, idleTime)
		}
	})
}
