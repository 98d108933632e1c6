// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestAskReturnsGreeting(t *testing.T) {
	for _, kind := range []Kind{VhostUser, Memif} {
		t.Run(string(kind), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			path := filepath.Join(t.TempDir(), "s")
			s, err := Listen(kind, path, Greeting("red"))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if got, err := Ask(ctx, path); err != nil || got != "hello from red" {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			if err := s.Crash(); err != nil || s.Answered() != 3 {
				t.Fatalf("%d answers, %v", s.Answered(), err)
			}
			if _, err := Ask(ctx, path); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("after the crash: %v", err)
			}
			if s, err = Listen(kind, path, Greeting("blue")); err != nil { // over the dead socket
				t.Fatal(err)
			}
			if got, err := Ask(ctx, path); err != nil || got != "hello from blue" {
				t.Fatalf("got %q, %v", got, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("closed twice: %v", err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is still there: %v", err)
			}
		})
	}
}

func TestAskAbstractSocket(t *testing.T) {
	path := "@jackfield-test-" + filepath.Base(t.TempDir()) + time.Now().Format("150405.000000000")
	s, err := Listen(Memif, path, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := Ask(t.Context(), path); err != nil || got != "x" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestListenKeepsOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(VhostUser, path, "x"); err == nil {
		t.Fatal("Listen replaced a regular file")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}
