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

// ReadAtMost returns the whole stream or an error, however the stream is divided.
func TestReadAtMostReturnsWholeStreamOrError(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 64 << 10, 1 << 18} {
		text := strings.Repeat("x", n)
		for division, r := range map[string]io.Reader{"in one read": strings.NewReader(text), "in half reads": iotest.HalfReader(strings.NewReader(text)),
			"with EOF in the last read": iotest.DataErrReader(strings.NewReader(text))} {
			got, err := ReadAtMost(r, 1<<18)
			if err != nil || string(got) != text {
				t.Errorf("%d bytes %s: %d, %v", n, division, len(got), err)
			}
		}
	}
	if got, err := ReadAtMost(strings.NewReader("four"), 3); got != nil || !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "more than the 3 bytes allowed") {
		t.Errorf("4 bytes, 3 allowed: %q, %v", got, err)
	}
	broken := errors.New("broken")
	for position, r := range map[string]io.Reader{"after": io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken)), "with": &dataAndErrorReader{broken}} {
		if got, err := ReadAtMost(r, 100); got != nil || !errors.Is(err, broken) {
			t.Errorf("error %s the last bytes: %q, %v", position, got, err)
		}
	}
}

// dataAndErrorReader returns a byte and an error in its first Read.
type dataAndErrorReader struct{ err error }

func (w *dataAndErrorReader) Read(b []byte) (int, error) {
	err := w.err
	w.err = io.EOF
	return copy(b, "a"), err
}
