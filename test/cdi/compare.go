// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	upstream "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// stricter are the rules that Jackfield has and upstream has not, by a part of the
// diagnostic; each is a row of the table in docs/cdi.md.
var stricter = []string{
	"data after the end of the spec",
	"a second document",
	"an entry must not be null",
	"must be an absolute path",
	"must be a number of seconds greater than 0",
	"an annotation's key",
	"bytes: at most",
	"the class has",
	"the vendor has",
	"must not contain a NUL",
	"must be permission bits",
	"must be a device number, 0 or more", // fractions and negative numbers
	"must be a user ID",                  // fractions
	"must be a group ID",
	"a key must be a string, not null", // which upstream drops
	"nested deeper than any CDI spec is",
	"aliases that stand for too much",
}

// Allowed tells whether the difference between the verdicts of the two on one
// text is intended; why names it.
func Allowed(text []byte, ours []cdiregistry.Diagnostic, theirs error) (why string, ok bool) {
	switch {
	case len(ours) == 0 && theirs == nil, len(ours) > 0 && theirs != nil:
		return "", true
	case len(ours) == 0:
		// JSON that is valid and that the YAML decoder does not take.
		return "valid JSON", json.Valid(text)
	case bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) && !json.Valid(text):
		// What looks like JSON is told what is wrong with it as JSON; what it is refused
		// for as YAML, which upstream reads it as, is said of it behind a document's start.
		var v cdiregistry.Validator
		_, ours = v.Parse(append([]byte("---\n"), text...))
		if len(ours) == 0 {
			return "is refused as JSON, and is good YAML", false
		}
	}
	for _, d := range ours {
		known := false
		for _, s := range stricter {
			known = known || strings.Contains(d.String(), s)
		}
		if !known {
			return d.String(), false
		}
	}
	return ours[0].String(), true
}

// Upstream gives upstream's verdict on one text; a panic is an error.
func Upstream(dir string, text []byte) (spec *specs.Spec, err error) {
	file := filepath.Join(dir, "x.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			spec, err = nil, fmt.Errorf("upstream panics: %v", r)
		}
	}()
	s, err := upstream.ReadSpec(file, 0)
	if err != nil {
		return nil, err
	}
	return s.Spec, nil
}

// Same compares specs as JSON, without the leading "v" of the version.
func Same(a, b *specs.Spec) error {
	x, err := normal(a)
	if err != nil {
		return err
	}
	y, err := normal(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(x, y) {
		return fmt.Errorf("specs differ:\njackfield %s\nupstream  %s", x, y)
	}
	return nil
}

func normal(s *specs.Spec) ([]byte, error) {
	c := *s
	c.Version = strings.TrimPrefix(c.Version, "v")
	return json.Marshal(&c)
}
