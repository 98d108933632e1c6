// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// ParseState reads a container's state, OCI Runtime Specification 1.3.0, "State", as a
// runtime gives it to hooks. The error is that of encoding/json; no value is checked.
func ParseState(data []byte) (*rspec.State, error) {
	text := string(data)
	s := &rspec.State{}
	if start := skipSpace(text, 0); json.Valid(data) && readPlain(text, span{start, skipValue(text, start)}, s) {
		return s, nil
	}
	s = &rspec.State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, err
	}
	return s, nil
}
