// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"
	"time"
)

// A glance that found something counts, though its time has passed as well; one that
// tells nothing is not waited for.
func TestGlanceAndDeadlineAtOnce(t *testing.T) {
	g := newGlances(nil).Get().(*glance)
	for range 1000 {
		g.told <- false
		if nothing, told := g.wait(0); nothing || !told {
			t.Fatalf("nothing %v, told %v", nothing, told)
		}
	}
	if _, told := g.wait(time.Millisecond); told {
		t.Error("told what nobody has")
	}
	g.told <- true
	if nothing, told := g.wait(time.Hour); !nothing || !told {
		t.Errorf("nothing %v, told %v", nothing, told)
	}
}
