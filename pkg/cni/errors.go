// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
)

// The error codes of the specification (§5, Error), and those above 100, which
// are the plugin's own.
const (
	codeVersion     = types.ErrIncompatibleCNIVersion
	codeField       = types.ErrUnsupportedField
	codeContainer   = types.ErrUnknownContainer
	codeEnvironment = types.ErrInvalidEnvironmentVariables
	codeIO          = types.ErrIOFailure
	codeDecode      = types.ErrDecodingFailure
	codeConfig      = types.ErrInvalidNetworkConfig
	codeLater       = types.ErrTryAgainLater
	codeUnavailable = types.ErrPluginNotAvailable
	codeLimited     = types.ErrLimitedConnectivity
	codeExists      = 100 // the interface or its attachment exists already
	codeChanged     = 101 // CHECK found something that is not as ADD left it
	codeDevice      = 102 // the device does not exist, or its driver does not fit
)

// codes are the codes of errors that bring none of their own.
var codes = []struct {
	is   func(error) bool
	code uint
	msg  string
}{
	{errdefs.IsUnavailable, codeLater, "try again later"},
	{errdefs.IsAlreadyExists, codeExists, "the attachment exists already"},
	{errdefs.IsConflict, codeConfig, "invalid network configuration"},
	{errdefs.IsInvalidArgument, codeConfig, "invalid network configuration"},
	{func(error) bool { return true }, codeIO, "I/O failure"},
}

// fail is an error with a code of the specification.
func fail(code uint, msg, details string, args ...any) error {
	if len(args) > 0 {
		details = fmt.Sprintf(details, args...)
	}
	return types.NewError(code, msg, details)
}

// invalid is an error of the configuration's field key (code 7).
func invalid(key, found, want string) error {
	return fail(codeConfig, "invalid network configuration: "+key+": "+found, "%s: found %s, want %s", key, found, want)
}

// environment is an error of an environment variable (code 4), which names it.
func environment(name, value, want string) error {
	return fail(codeEnvironment, "invalid environment variable "+name, "%s=%q: want %s", name, short(value), want)
}

// unsupported is an error of fields that nothing defines or that cannot be had
// (code 2). Its message has each key with its value.
func unsupported(why string, fields ...field) error {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = fmt.Sprintf("%q: %s", f.key, short(compact(f.value)))
	}
	return fail(codeField, "unsupported field in network configuration: "+strings.Join(texts, ", "), "%s", why)
}

// field is a key of the configuration, with dots, and its value.
type field struct {
	key   string
	value json.RawMessage
}

// asError gives any error its code.
func asError(err error) *types.Error {
	var e *types.Error
	if errors.As(err, &e) {
		return e
	}
	for _, c := range codes {
		if c.is(err) {
			return types.NewError(c.code, c.msg, err.Error())
		}
	}
	return nil
}

// joinErrors is several errors in one, with the code of the first.
func joinErrors(errs ...error) error {
	errs = withoutNil(errs)
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	first := asError(errs[0])
	details := make([]string, len(errs))
	for i, err := range errs {
		e := asError(err)
		details[i] = strings.TrimSuffix(e.Msg+": "+e.Details, ": ")
	}
	return types.NewError(first.Code, first.Msg, strings.Join(details, "; "))
}

func withoutNil(errs []error) (list []error) {
	for _, err := range errs {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

// compact is JSON without white space, or what is there where it is none.
func compact(v json.RawMessage) string {
	var b strings.Builder
	var x any
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	dec := json.NewDecoder(strings.NewReader(string(v)))
	dec.UseNumber()
	if dec.Decode(&x) != nil || enc.Encode(x) != nil {
		return string(v)
	}
	return strings.TrimSpace(b.String())
}

// short keeps messages readable: values come from outside.
func short(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
