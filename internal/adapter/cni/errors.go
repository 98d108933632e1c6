// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// The error codes of the specification (§5, Error). Codes from 100 are the plugin's own.
const (
	codeVersion     = types.ErrIncompatibleCNIVersion
	codeContainer   = types.ErrUnknownContainer
	codeEnvironment = types.ErrInvalidEnvironmentVariables
	codeIO          = types.ErrIOFailure
	codeDecode      = types.ErrDecodingFailure
	codeConfig      = types.ErrInvalidNetworkConfig
	codeExists      = attach.CodeExists
)

// environment returns the error for an environment variable (code 4).
// rule begins with "must".
func (p *Plugin) environment(name, rule string) error {
	return attach.Fail(codeEnvironment, "invalid environment variable "+name, "%s: invalid value %q: %s", name,
		diag.Excerpt(p.getenv(name), diag.MaxExcerpt), rule)
}
