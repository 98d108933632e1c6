// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"
)

// A stream is read whole, however it comes, or is an error: never a part of it.
func TestReadAtMost(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 64 << 10, 1 << 18} {
		text := strings.Repeat("x", n)
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(text), "by halves": iotest.HalfReader(strings.NewReader(text)),
			"with the end": iotest.DataErrReader(strings.NewReader(text))} {
			got, err := ReadAtMost(r, 1<<18)
			if err != nil || string(got) != text {
				t.Errorf("%d bytes %s: %d, %v", n, how, len(got), err)
			}
		}
	}
	if got, err := ReadAtMost(strings.NewReader("four"), 3); got != nil || !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "more than the 3 bytes allowed") {
		t.Errorf("more than allowed: %q, %v", got, err)
	}
	broken := errors.New("broken")
	for how, r := range map[string]io.Reader{"behind": io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken)), "with": &withError{broken}} {
		if got, err := ReadAtMost(r, 100); got != nil || !errors.Is(err, broken) {
			t.Errorf("an error %s the last bytes: %q, %v", how, got, err)
		}
	}
}

// withError gives bytes and an error in one, once.
type withError struct{ err error }

func (w *withError) Read(b []byte) (int, error) {
	err := w.err
	w.err = io.EOF
	return copy(b, "a"), err
}
