// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Results of VPP's API that the driver expects.
const (
	retvalInvalidInterface = -2
	retvalNoSuchEntry      = -6
	retvalInvalidArgument  = -73
)

// results maps the results that the driver's calls can return to sentinels. VPP's ten system call
// errors begin at -11.
var results = map[int32]struct {
	text string
	kind error
}{
	-1:                     {"unspecified error", errdefs.ErrFailedPrecondition},
	retvalInvalidInterface: {"no such interface", errdefs.ErrNotFound},
	retvalNoSuchEntry:      {"no such entry", errdefs.ErrNotFound},
	-7:                     {"invalid value", errdefs.ErrInvalidArgument},
	-8:                     {"invalid value", errdefs.ErrInvalidArgument},
	-9:                     {"not implemented", errdefs.ErrNotImplemented},
	-30:                    {"feature disabled by configuration", errdefs.ErrNotImplemented},
	-56:                    {"VLAN has a sub-interface", errdefs.ErrAlreadyExists},
	-68:                    {"interface exists", errdefs.ErrAlreadyExists},
	-69:                    {"interface not created", errdefs.ErrFailedPrecondition},
	retvalInvalidArgument:  {"invalid argument", errdefs.ErrInvalidArgument},
	-74:                    {"unexpected state of the interface", errdefs.ErrFailedPrecondition},
	-79:                    {"interface exists", errdefs.ErrAlreadyExists},
	-81:                    {"value exists", errdefs.ErrAlreadyExists},
	-116:                   {"entry exists", errdefs.ErrAlreadyExists},
	-119:                   {"bridge domain exists", errdefs.ErrAlreadyExists},
	-120:                   {"bridge domain has members", errdefs.ErrFailedPrecondition},
	-126:                   {"unsupported", errdefs.ErrNotImplemented},
	-144:                   {"initialization failed", errdefs.ErrFailedPrecondition},
	-162:                   {"limit exceeded", errdefs.ErrFailedPrecondition},
}

// retvalError is the negative result of a call. It unwraps to a sentinel of containerd/errdefs.
type retvalError struct {
	message string
	retval  int32
}

func (e *retvalError) Error() string {
	text := "error"
	if r, ok := results[e.retval]; ok {
		text = r.text
	} else if e.retval <= -11 && e.retval >= -20 {
		text = "system call failed"
	}
	return fmt.Sprintf("%s: %s (%d)", e.message, text, e.retval)
}

func (e *retvalError) Unwrap() error {
	if r, ok := results[e.retval]; ok {
		return r.kind
	}
	return errdefs.ErrFailedPrecondition
}
