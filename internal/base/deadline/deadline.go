// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
)

var (
	// ErrTimeout is the error for work that exceeded its time and continues. It is an
	// errdefs.ErrUnavailable.
	ErrTimeout = errdefs.ErrUnavailable.WithMessage("timed out")
	// ErrBusy is the error for work that was not started because every goroutine of the pool is
	// busy. It is an errdefs.ErrUnavailable.
	ErrBusy = errdefs.ErrUnavailable.WithMessage("all workers are busy")
)

// PanicError is a panic in the work. It is an errdefs.ErrInternal.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("internal error: %v", e.Value) }

func (e *PanicError) Unwrap() error { return errdefs.ErrInternal }

// Pool bounds the number of working goroutines. A nil Pool is unbounded.
type Pool struct {
	size int64
	busy atomic.Int64
	idle chan func() // idle goroutines receive their next work from it
}

// NewPool returns a pool of at most size goroutines.
func NewPool(size int) *Pool { return &Pool{size: int64(size), idle: make(chan func())} }

// Busy returns the number of working goroutines, including hanging ones.
func (p *Pool) Busy() int { return int(p.busy.Load()) }

// Go runs f in a goroutine and does not wait for it. If every goroutine is busy, it returns false
// without running f.
func (p *Pool) Go(f func()) bool {
	if p == nil {
		go f()
		return true
	}
	if p.busy.Add(1) > p.size {
		p.busy.Add(-1)
		return false
	}
	select {
	case p.idle <- f:
	default:
		go p.runUntilIdle(f)
	}
	return true
}

// idleTime is the time that a goroutine waits for more work.
const idleTime = 10 * time.Second

// runUntilIdle runs f, and then further work that arrives within idleTime. A new goroutine starts
// with a small stack and enlarges it several times while it resolves a container's requests
// (BenchmarkNRICreateContainer), so reuse pays.
func (p *Pool) runUntilIdle(f func()) {
	for {
		f()
		p.busy.Add(-1)
		select {
		case f = <-p.idle:
		case <-time.After(idleTime):
			return
		}
	}
}

// Run runs f in a goroutine of the pool and returns its result, or [ErrTimeout] after d. After a
// timeout f continues. A result that arrives together with the timeout counts. The error is
// [ErrBusy] if the pool has no free goroutine, and a [*PanicError] if f panics.
func Run[T any](p *Pool, d time.Duration, f func() (T, error)) (T, error) {
	return RunOrHandOver(p, d, f, func(T, error) {})
}

// RunOrHandOver is [Run] for a result that must not be lost: either the caller receives it or,
// after a timeout, late receives it in the goroutine of f.
func RunOrHandOver[T any](p *Pool, d time.Duration, f func() (T, error), late func(T, error)) (T, error) {
	var decided atomic.Bool // set by the side that receives the result
	done := make(chan result[T], 1)
	begun := p.Go(func() {
		r := runRecovered(f)
		if decided.CompareAndSwap(false, true) {
			done <- r
		} else {
			late(r.value, r.err)
		}
	})
	var none T
	if !begun {
		return none, ErrBusy
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(d):
	}
	if decided.CompareAndSwap(false, true) {
		return none, ErrTimeout
	}
	r := <-done
	return r.value, r.err
}

type result[T any] struct {
	value T
	err   error
}

// runRecovered runs f and returns a panic as a *PanicError. On a goroutine of its own, a panic would end the process.
func runRecovered[T any](f func() (T, error)) (r result[T]) {
	defer func() {
		if v := recover(); v != nil {
			r = result[T]{err: &PanicError{v}}
		}
	}()
	r.value, r.err = f()
	return r
}

// Sleep returns after d, or when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Within is [Run] without a pool, for work whose only result is an error.
func Within(d time.Duration, f func() error) error {
	_, err := Run(nil, d, func() (struct{}, error) { return struct{}{}, f() })
	return err
}
