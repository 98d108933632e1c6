// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"regexp"
	"testing"
)

func TestFirstLineWithoutCommandIsTheVersion(t *testing.T) {
	a := newNode(t).run(nil, "")
	if !regexp.MustCompile(`^jackfield-cni \S+( \([0-9a-f]+(\+changes)?\))? go1\S+\n`).MatchString(a.stderr) {
		t.Errorf("%q", a.stderr)
	}
}
