// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// Errors have the codes of the CNI specification (§5, Error). Jackfield's own codes begin at 100.
const (
	codeField       = types.ErrUnsupportedField
	codeIO          = types.ErrIOFailure
	codeConfig      = types.ErrInvalidNetworkConfig
	codeLater       = types.ErrTryAgainLater
	codeUnavailable = types.ErrPluginNotAvailable
	codeLimited     = types.ErrLimitedConnectivity

	CodeExists  = 100 // the interface or its attachment exists already
	CodeChanged = 101 // Check found a change since Add
	CodeDevice  = 102 // the device does not exist, or its driver does not fit
	CodeDenied  = 103 // the node's policy denies the port
	CodeSwitch  = 104 // the vswitch refuses the port
)

// Fail returns an error with a code. Errors among args are printed without sentinels.
func Fail(code uint, msg, details string, args ...any) error {
	if len(args) > 0 {
		details = diag.Sprintf(details, args...)
	}
	return types.NewError(code, msg, details)
}

// Invalid returns the error for the value of a dotted key. "nothing" stands for a missing value.
func (t *Attachment) Invalid(key, found, rule string) error {
	s, name := t.Source, t.Source.Name(key)
	summary := "invalid network configuration: " + name + ": " + found
	if found == "nothing" {
		return Fail(codeConfig, summary, "%s%s: missing value: must be %s", s.Place(key), name, rule)
	}
	return Fail(codeConfig, summary, "%s%s: invalid value %s: must be %s", s.Place(key), name, found, rule)
}

// Unsupported returns the error for unknown keys, and for keys that request something impossible.
// Its message lists each key with its value.
func (t *Attachment) Unsupported(why string, keys ...string) error {
	s, texts := t.Source, make([]string, len(keys))
	for i, key := range keys {
		texts[i] = fmt.Sprintf("%q: %s", s.Name(key), s.Value(key))
	}
	return Fail(codeField, "unsupported field in network configuration: "+strings.Join(texts, ", "), "%s%s",
		s.Place(keys[0]), why)
}

// ioError returns err with the code for I/O failures; subject names the affected file or directory. It returns nil for
// nil.
func ioError(subject string, err error) error {
	if err == nil {
		return nil
	}
	return Fail(codeIO, "I/O failure: "+subject, "%v", err)
}

// dirError returns the coded error for a directory that the configuration sets with key.
func dirError(key string, err error) error {
	var untrusted *trust.Error
	if errors.As(err, &untrusted) {
		return Fail(codeConfig, "invalid network configuration: "+key, "%s: %v", key, untrusted)
	}
	return ioError(key, err)
}

// AsError returns err with a code. An error without one receives the code of its sentinel.
func AsError(err error) *types.Error {
	var e *types.Error
	if errors.As(err, &e) {
		return e
	}
	code, msg := uint(codeIO), "I/O failure"
	switch {
	case errdefs.IsUnavailable(err):
		code, msg = codeLater, "try again later"
	case errdefs.IsAlreadyExists(err):
		code, msg = CodeExists, "the attachment already exists"
	case errdefs.IsConflict(err), errdefs.IsInvalidArgument(err):
		code, msg = codeConfig, "invalid network configuration"
	}
	return types.NewError(code, msg, diag.ErrorText(err))
}

// JoinErrors joins errors into one, with the code of the first.
func JoinErrors(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	first := AsError(errs[0])
	details := make([]string, len(errs))
	for i, err := range errs {
		details[i] = messageOf(err)
	}
	return types.NewError(first.Code, first.Msg, strings.Join(details, "; "))
}

// messageOf returns the message and, if there are any, the details of an error.
func messageOf(err error) string {
	e := AsError(err)
	return strings.TrimSuffix(e.Msg+": "+e.Details, ": ")
}
