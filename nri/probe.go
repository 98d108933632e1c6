// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync"
	"time"
)

// patience is how long a scrape waits for a directory that does not answer.
const patience = 500 * time.Millisecond

// probe looks at something that may hang, on a goroutine of its own: one at a time,
// however many ask.
type probe[T any] struct {
	mu      sync.Mutex
	pending chan struct{}
	value   T
}

// get is what look gives, and false when it does not in time.
func (s *probe[T]) get(look func(last T) T) (T, bool) {
	s.mu.Lock()
	done := s.pending
	if done == nil {
		done = make(chan struct{})
		s.pending = done
		last := s.value
		go func() {
			value := look(last)
			s.mu.Lock()
			s.value, s.pending = value, nil
			s.mu.Unlock()
			close(done)
		}()
	}
	s.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		var none T
		return none, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, true
}
