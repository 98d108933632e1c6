// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"testing"
)

func TestUnknownFlagExitsWithUsageStatus(t *testing.T) {
	old := os.Args
	defer func() { os.Args = old }()
	os.Args = []string{"jackfield-nri", "--bogus"}
	if got := run(); got != 2 {
		t.Errorf("exit status %d for an unknown flag, want 2", got)
	}
	if got := exitStatus(errors.New("no such socket")); got != 3 {
		t.Errorf("exit status %d for another error, want 3", got)
	}
}

func TestInvalidFlagValueExitsWithUsageStatus(t *testing.T) {
	old := os.Args
	defer func() { os.Args = old }()
	for _, flag := range []string{"--log-level=loud", "--log-format=xml"} {
		os.Args = []string{"jackfield-nri", flag}
		if got := run(); got != 2 {
			t.Errorf("%s: exit status %d, want 2", flag, got)
		}
	}
}
