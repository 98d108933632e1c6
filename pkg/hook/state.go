// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/apply/oci"
	"github.com/jackfield/jackfield/pkg/wording"
)

// maxInput is the most that is read from standard input and of a bundle's
// config.json, in bytes; those of Kubernetes have some 20,000.
const maxInput = 4 << 20

// parseState reads a container's state, OCI Runtime Specification 1.3.0, "State".
func parseState(text []byte) (*rspec.State, error) {
	s, err := oci.ParseState(text)
	if err != nil {
		return nil, notJSON(err)
	}
	switch {
	case s.Version == "":
		return nil, fmt.Errorf("ociVersion: missing: %w", errdefs.ErrInvalidArgument)
	case !validID(s.ID):
		return nil, fmt.Errorf("id: found %s, want 1 to 1024 printable characters without a slash: %w", wording.Quote(s.ID, wording.Most), errdefs.ErrInvalidArgument)
	case s.Pid < 0:
		return nil, fmt.Errorf("pid: found %d, want the container's first process: %w", s.Pid, errdefs.ErrInvalidArgument)
	case !path.IsAbs(s.Bundle):
		return nil, fmt.Errorf("bundle: found %s, want an absolute path: %w", wording.Quote(s.Bundle, wording.Most), errdefs.ErrInvalidArgument)
	}
	return s, nil
}

// notJSON is an error of encoding/json without the names of Go's types.
func notJSON(err error) error {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typ) && typ.Field != "":
		return fmt.Errorf("%s: found a JSON %s: %w", typ.Field, typ.Value, errdefs.ErrInvalidArgument)
	case errors.As(err, &typ):
		return fmt.Errorf("found a JSON %s, want an object: %w", typ.Value, errdefs.ErrInvalidArgument)
	case errors.As(err, &syntax):
		return fmt.Errorf("byte %d: not JSON: %w: %w", syntax.Offset, err, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
}

func validID(id string) bool {
	if id == "" || len(id) > 1024 || id == "." || id == ".." {
		return false
	}
	for _, r := range id {
		if r <= ' ' || r == '/' || r == 0x7f {
			return false
		}
	}
	return true
}

// stageOf tells the stage from what is on standard input: Podman hands over an OCI
// configuration at precreate, and at every other stage a runtime hands over a state.
func stageOf(text []byte) (Stage, error) {
	var both struct {
		Version string           `json:"ociVersion"`
		ID      *json.RawMessage `json:"id"`
		Status  string           `json:"status"`
		Process *json.RawMessage `json:"process"`
		Root    *json.RawMessage `json:"root"`
	}
	if err := json.Unmarshal(text, &both); err != nil {
		return "", fmt.Errorf("read standard input: %w", notJSON(err))
	}
	switch {
	case both.ID == nil && both.Version != "" && (both.Process != nil || both.Root != nil):
		return Precreate, nil
	case both.ID == nil:
		return "", fmt.Errorf("read standard input: it is neither a container's state nor an OCI configuration; an OCI runtime runs this program: %w", errdefs.ErrInvalidArgument)
	case both.Status == "stopped":
		return Poststop, nil
	}
	return CreateRuntime, nil
}

// bundleConfig reads a bundle's config.json.
func (h *hook) bundleConfig(bundle string) (*oci.Config, error) {
	name := path.Join(bundle, "config.json")
	text, err := h.host.ReadFile(name, maxInput)
	if err != nil {
		return nil, err
	}
	c, err := oci.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("read OCI spec %q: %w", name, err)
	}
	return c, nil
}
