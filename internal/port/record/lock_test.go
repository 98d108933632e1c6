// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestLockIsHeldByOneAndEndsWithTheRecord(t *testing.T) {
	s, _ := openTestStore(t)
	r := recordWithPort("c1", "net1")
	if unlock, err := s.LockRecord(r.Key, 0); unlock != nil || err != nil {
		t.Errorf("locked without a record: %v", err)
	}
	if err := s.Create(r); err != nil {
		t.Fatal(err)
	}
	unlock, err := s.LockRecord(r.Key, 0)
	if unlock == nil || err != nil {
		t.Fatalf("not locked: %v", err)
	}
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		if _, err := s.LockRecord(r.Key, wait); !errdefs.IsConflict(err) {
			t.Errorf("locked twice, after %v: %v", wait, err)
		}
	}
	// A process that waits for the lock gets none if the record is removed meanwhile.
	waited := make(chan bool)
	go func() {
		unlock, err := s.LockRecord(r.Key, time.Minute)
		waited <- unlock == nil && err == nil
	}()
	time.Sleep(50 * time.Millisecond)
	if err := s.Remove(r.Key); err != nil {
		t.Error(err)
	}
	unlock()
	if !<-waited {
		t.Error("the record is removed, and its lock was taken")
	}
}
