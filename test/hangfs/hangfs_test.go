// SPDX-License-Identifier: Apache-2.0

package hangfs

import (
	"os"
	"testing"
	"time"
)

func TestMountHangsAndIsReleased(t *testing.T) {
	dir := t.TempDir()
	release := Mount(t, dir)
	done := make(chan error, 1)
	go func() {
		_, err := os.ReadDir(dir)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it answers: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	release()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the directory was read")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("who waited is not released")
	}
}
