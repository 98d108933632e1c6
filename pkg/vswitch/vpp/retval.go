// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Results of VPP's API that tell the driver what is wrong.
const (
	retvalNoSuchEntry      = -6
	retvalSubIfExists      = -68
	retvalInvalidArgument  = -73
	retvalInterfaceExists  = -79
	retvalValueExists      = -81
	retvalEntryExists      = -116
	retvalInvalidInterface = -2
)

// retvals are the results that the driver's calls can have. The first of VPP's ten system call errors is -11.
var retvals = map[int32]string{
	-1:                     "unspecified error",
	retvalInvalidInterface: "no such interface",
	retvalNoSuchEntry:      "no such entry",
	-7:                     "invalid value",
	-8:                     "invalid value",
	-9:                     "not implemented",
	-30:                    "feature disabled by configuration",
	retvalSubIfExists:      "interface exists",
	-69:                    "interface not created",
	retvalInvalidArgument:  "invalid argument",
	-74:                    "unexpected state of the interface",
	retvalInterfaceExists:  "interface exists",
	retvalValueExists:      "value exists",
	retvalEntryExists:      "entry exists",
	-126:                   "unsupported",
	-144:                   "initialization failed",
	-162:                   "limit exceeded",
}

func describeRetval(retval int32) string {
	words, ok := retvals[retval]
	switch {
	case !ok && retval <= -11 && retval >= -20:
		words = "system call failed"
	case !ok:
		words = "error"
	}
	return fmt.Sprintf("%s (%d)", words, retval)
}

// kind returns the sentinel of a result.
func (e *retvalError) kind() error {
	switch e.retval {
	case retvalSubIfExists, retvalInterfaceExists, retvalValueExists, retvalEntryExists:
		return errdefs.ErrAlreadyExists
	case retvalNoSuchEntry, retvalInvalidInterface:
		return errdefs.ErrNotFound
	case -7, -8, retvalInvalidArgument:
		return errdefs.ErrInvalidArgument
	case -9, -30, -126:
		return errdefs.ErrNotImplemented
	}
	return errdefs.ErrFailedPrecondition
}
