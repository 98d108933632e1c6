// SPDX-License-Identifier: Apache-2.0

package cnirecord

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestLockIsHeldByOneAndEndsWithTheRecord(t *testing.T) {
	s, _ := openTestStore(t)
	r := recordWithPort("c1", "net1")
	if unlock, err := s.TryLock(r.Key); unlock != nil || err != nil {
		t.Errorf("locked without a record: %v", err)
	}
	if err := s.Create(r); err != nil {
		t.Fatal(err)
	}
	unlock, err := s.TryLock(r.Key)
	if unlock == nil || err != nil {
		t.Fatalf("not locked: %v", err)
	}
	if _, err := s.TryLock(r.Key); !errdefs.IsConflict(err) {
		t.Errorf("locked twice: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, r.Key); !errdefs.IsConflict(err) {
		t.Errorf("locked twice: %v", err)
	}
	// A process that waits for the lock gets none if the record is removed meanwhile.
	waited := make(chan bool)
	go func() {
		unlock, err := s.Lock(t.Context(), r.Key)
		waited <- unlock == nil && err == nil
	}()
	time.Sleep(5 * lockPause)
	if err := s.Remove(r.Key); err != nil {
		t.Error(err)
	}
	unlock()
	if !<-waited {
		t.Error("the record is removed, and its lock was taken")
	}
}
