// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"
)

// An error lists its first 16 problems and counts the others.
func TestErrorListsFirstProblems(t *testing.T) {
	e := &Error{Container: "ns/pod/app"}
	for range 16 {
		e.Errs = append(e.Errs, errors.New("is missing"))
	}
	if got := e.Error(); !strings.HasPrefix(got, `container "ns/pod/app": 16 problems: (1) is missing (2)`) || !strings.HasSuffix(got, "(16) is missing") {
		t.Error(got)
	}
	for range 1000 {
		e.Errs = append(e.Errs, errors.New("is missing"))
	}
	if got := e.Error(); !strings.HasPrefix(got, `container "ns/pod/app": 1016 problems: (1) is missing (2)`) || !strings.HasSuffix(got, "(16) is missing and 1000 more") {
		t.Error(got)
	}
}
