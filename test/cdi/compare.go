// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	upstream "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// stricter lists the rules that only Jackfield has, each by a part of its diagnostic. Each has a row
// in the table of docs/contributing/conformance-cdi.md.
var stricter = []string{
	"nothing may follow the end of the",
	"a second YAML document",
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
	"a key must be a string, not null", // upstream drops such a key
	"must not be nested deeper than",
	"aliases that stand for too much",
}

// parseText returns the spec in a text, or its faults.
func parseText(text []byte) (*specs.Spec, cdi.FieldErrors) {
	spec, err := cdi.ParseSpec(text)
	if refused, ok := errors.AsType[*cdi.SpecError](err); ok {
		return spec, refused.Faults
	}
	return spec, nil
}

// isIntended reports whether Jackfield and upstream agree about a text or differ on purpose. why is
// the reason for the difference.
func isIntended(text []byte, ours cdi.FieldErrors, theirs error) (why string, ok bool) {
	switch {
	case len(ours) == 0 && theirs == nil, len(ours) > 0 && theirs != nil:
		return "", true
	case len(ours) == 0:
		// The YAML decoder rejects some valid JSON.
		return "valid JSON", json.Valid(text)
	case bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) && !json.Valid(text):
		// Jackfield reports such text as invalid JSON. Upstream reads it as YAML, and so does
		// Jackfield after a document start.
		_, ours = parseText(append([]byte("---\n"), text...))
		if len(ours) == 0 {
			return "rejected as JSON, and valid as YAML", false
		}
	}
	for _, d := range ours {
		known := false
		for _, s := range stricter {
			known = known || strings.Contains(d.Error(), s)
		}
		if !known {
			return d.Error(), false
		}
	}
	return ours[0].Error(), true
}

// parseUpstream parses a text with upstream. A panic is an error.
func parseUpstream(dir string, text []byte) (spec *specs.Spec, err error) {
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

// compareSpecs compares specs as JSON, without the leading "v" of the version.
func compareSpecs(a, b *specs.Spec) error {
	x, err := marshalNormalized(a)
	if err != nil {
		return err
	}
	y, err := marshalNormalized(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(x, y) {
		return fmt.Errorf("specs differ:\njackfield %s\nupstream  %s", x, y)
	}
	return nil
}

func marshalNormalized(s *specs.Spec) ([]byte, error) {
	c := *s
	c.Version = strings.TrimPrefix(c.Version, "v")
	return json.Marshal(&c)
}
