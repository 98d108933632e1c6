// SPDX-License-Identifier: Apache-2.0

package netavark

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/diag"
)

// invalid returns the error for a value.
func invalid(what, found, want string) error {
	return fmt.Errorf("%s: found %s, want %s", what, quote(found), want)
}

// errorText returns the text of an error for a person. Package attach says in the details which value is wrong.
func errorText(err error) string {
	var e *types.Error
	switch {
	case !errors.As(err, &e):
		return diag.ErrorText(err)
	case e.Details == "":
		return e.Msg
	case strings.HasPrefix(e.Msg, "invalid network configuration"):
		return e.Details
	}
	return e.Msg + ": " + e.Details
}

// quote returns foreign text for messages, in quotation marks, with a bound.
func quote(s string) string { return diag.Quote(s, diag.Most) }
