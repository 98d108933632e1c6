// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/vswitch"
)

func TestConnectPrintsGreeting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := vswitch.Listen(vswitch.Memif, path, vswitch.Greeting("red"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out strings.Builder
	if err := run(t.Context(), []string{"connect", path}, &out); err != nil || out.String() != "hello from red\n" {
		t.Fatalf("printed %q, %v", &out, err)
	}
	if err := run(t.Context(), []string{"connect", path + "x"}, &out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing socket gave %v", err)
	}
}

func TestListenAnswersAsOftenAsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	done := make(chan error, 1)
	go func() { done <- run(t.Context(), []string{"listen", path, "yes", "1"}, &strings.Builder{}) }()
	var answer string
	for end := time.Now().Add(time.Minute); answer == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
		answer, _ = vswitch.Ask(t.Context(), path)
	}
	if err := <-done; err != nil || answer != "yes" {
		t.Errorf("answered %q, ended with %v", answer, err)
	}
}

func TestInvalidArgumentsAreUsageErrors(t *testing.T) {
	for _, args := range [][]string{nil, {"connect"}, {"listen", "p"}, {"listen", "p", "r", "0"}, {"listen", "p", "r", "x"}, {"dance"}} {
		if err := run(t.Context(), args, &strings.Builder{}); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
