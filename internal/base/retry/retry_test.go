// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var (
	errBusy   = errors.New("busy")
	errBroken = errors.New("broken")
)

func isBusy(err error) bool { return err == errBusy }

func TestWaitsGrowToTheLast(t *testing.T) {
	b := Backoff{First: time.Second, Last: 5 * time.Second}
	for _, want := range []time.Duration{1, 2, 4, 5, 5} {
		if got := b.NextWait(); got != want*time.Second {
			t.Errorf("waits %v, want %vs", got, want)
		}
	}
	b.Reset()
	if got := b.NextWait(); got != time.Second {
		t.Errorf("waits %v after a success, want 1s", got)
	}
}

func TestOnlyTransientErrorsAreRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		fails    []error
		want     error
		attempts int
		took     time.Duration
	}{
		"success":   {[]error{nil}, nil, 1, 0},
		"busy":      {[]error{errBusy, errBusy, errBusy, nil}, nil, 4, 7 * time.Second},
		"broken":    {[]error{errBusy, errBroken, nil}, errBroken, 2, time.Second},
		"too late":  {[]error{errBusy, errBusy, errBusy, errBusy, errBusy, nil}, errBusy, 4, 10 * time.Second},
		"permanent": {[]error{errBroken}, errBroken, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began, attempts := time.Now(), 0
				err := (&Backoff{First: time.Second, Last: time.Hour}).Retry(ctx, isBusy, func() error {
					attempts++
					return tc.fails[attempts-1]
				})
				if took := time.Since(began); err != tc.want || attempts != tc.attempts || took != tc.took {
					t.Errorf("%v after %d attempts and %v, want %v, %d, %v", err, attempts, took, tc.want, tc.attempts, tc.took)
				}
			})
		})
	}
}
