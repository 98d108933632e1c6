// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/edit/oci"
)

// maxInput bounds standard input and a bundle's config.json, in bytes. Kubernetes' configurations
// have about 20,000.
const maxInput = 64 << 20

// parseState parses a container's state (OCI Runtime Specification 1.3.0, "State").
func parseState(text []byte) (*rspec.State, error) {
	s := &rspec.State{}
	if err := (jsontree.Decoder{}).Unmarshal(string(text), s); err != nil {
		return nil, err
	}
	switch {
	case s.Version == "":
		return nil, fmt.Errorf("ociVersion is missing: %w", errdefs.ErrInvalidArgument)
	case !validID(s.ID):
		return nil, fmt.Errorf("id: invalid value %s: must be 1 to 1024 printable characters without a slash: %w",
			diag.Quote(s.ID), errdefs.ErrInvalidArgument)
	case s.Pid < 0:
		return nil, fmt.Errorf("pid: invalid value %d: must be the ID of the container's first process: %w", s.Pid,
			errdefs.ErrInvalidArgument)
	case !path.IsAbs(s.Bundle):
		return nil, fmt.Errorf("bundle: invalid value %s: must be an absolute path: %w", diag.Quote(s.Bundle),
			errdefs.ErrInvalidArgument)
	}
	return s, nil
}

func validID(id string) bool {
	return id != "" && len(id) <= 1024 && id != "." && id != ".." &&
		!strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f })
}

// detectStage derives the stage from standard input. At precreate, Podman passes an OCI
// configuration. At every other stage the runtime passes a state.
func detectStage(text []byte) (Stage, error) {
	var input struct {
		Version string         `json:"ociVersion"`
		ID      *jsontree.Node `json:"id"`
		Status  string         `json:"status"`
		Process *jsontree.Node `json:"process"`
		Root    *jsontree.Node `json:"root"`
	}
	if err := (jsontree.Decoder{}).Unmarshal(string(text), &input); err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	switch {
	case input.ID == nil && input.Version != "" && (input.Process != nil || input.Root != nil):
		return Precreate, nil
	case input.ID == nil:
		return "", fmt.Errorf("read standard input: neither a container's state nor an OCI configuration; an OCI "+
			"runtime runs this program: %w", errdefs.ErrInvalidArgument)
	case input.Status == "stopped":
		return Poststop, nil
	}
	return CreateRuntime, nil
}

// readBundleConfig reads a bundle's config.json.
func (h *hook) readBundleConfig(bundle string) (*oci.Config, error) {
	name := path.Join(bundle, "config.json")
	text, err := h.host.ReadFile(name, maxInput)
	if err != nil {
		return nil, err
	}
	c, err := oci.ParseConfig(name, text)
	if err != nil {
		return nil, fmt.Errorf("read OCI configuration: %w", err)
	}
	return c, nil
}
