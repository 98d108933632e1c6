// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// A thread comes back out of a container for certain in the host's user namespace alone,
// and only a process that can be ended does without that certainty.
func TestEntering(t *testing.T) {
	var ended error
	end := func(err error) { ended = err }
	for name, tc := range map[string]struct {
		inside   bool
		stranded func(error)
		itself   bool
	}{
		"the hook": {false, end, true}, "the hook in a user namespace": {true, end, false}, "another program": {false, nil, false},
	} {
		h := &hook{env: Env{Stranded: tc.stranded}, around: func() (hostfs.Outside, bool) { return hostfs.Outside{}, tc.inside }}
		opts := h.entering(func(err error) error { return errors.Join(err, fs.ErrClosed) })
		if (opts.Stranded != nil) != tc.itself {
			t.Errorf("%s: %+v", name, opts)
		}
		if opts.Stranded == nil {
			continue
		}
		if opts.Stranded(fs.ErrInvalid); !errors.Is(ended, fs.ErrInvalid) || !errors.Is(ended, fs.ErrClosed) {
			t.Errorf("%s: %v", name, ended)
		}
	}
}
