// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"io"
	"testing"

	"github.com/containerd/errdefs"
)

// The levels are those that the usage names, and no others that the logger has.
func TestLogLevels(t *testing.T) {
	for _, level := range []string{"error", "warning", "info", "debug"} {
		if _, err := newLogger(io.Discard, level, "json"); err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}
	for _, level := range []string{"panic", "Fatal", "trace", "", "all"} {
		if _, err := newLogger(io.Discard, level, "json"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", level, err)
		}
	}
}
