// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// specFileName returns the name of a file to write, with .json if it has no extension of a spec file.
func specFileName(name string) (string, error) {
	if ext := path.Ext(name); ext != ".json" && ext != ".yaml" {
		name += ".json"
	}
	// The temporary name is longer.
	if strings.ContainsAny(name, "/\x00") || len(name) > unix.NAME_MAX-32 {
		return name, fmt.Errorf("the name must be a file name of at most %d bytes: %w",
			unix.NAME_MAX-32, errdefs.ErrInvalidArgument)
	}
	return name, nil
}

// encodeSpec returns the text of a spec in the syntax of a file's extension. An invalid spec is a *SpecError.
func encodeSpec(spec *specs.Spec, file string) (text []byte, err error) {
	if spec == nil {
		return nil, fmt.Errorf("the spec is nil: %w", errdefs.ErrInvalidArgument)
	}
	if path.Ext(file) == ".yaml" {
		text, err = yaml.Marshal(spec)
	} else if text, err = json.MarshalIndent(spec, "", "  "); err == nil {
		text = append(text, '\n')
	}
	if err != nil {
		return nil, err
	}
	if _, err := ParseSpec(text); err != nil {
		if refused, ok := errors.AsType[*SpecError](err); ok {
			refused.Path = file
		}
		return nil, err
	}
	return text, nil
}
