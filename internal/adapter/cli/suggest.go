// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// nearestWord returns the candidate that a word was probably meant to be: the closest one, or else
// the first that begins with it or has it between its dashes; "" for none.
func nearestWord(word string, candidates []string) string {
	if near := diag.Nearest(word, candidates...); near != "" || word == "" {
		return near
	}
	for _, c := range candidates {
		if strings.HasPrefix(c, word) || slices.Contains(strings.Split(c, "-"), word) {
			return c
		}
	}
	return ""
}

// flagError returns a usage error about the flags of a command. The hint about an unknown flag
// names the one that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = fmt.Errorf("--%s: invalid value %q: %w", invalid.GetFlag().Name, invalid.GetValue(), wantedValue(invalid))
	}
	h := &hintedError{err: err, hint: helpHint(cmd), usage: true}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return h
	}
	if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
		h.hint = fmt.Sprintf("did you mean `--%s`? %s", near, h.hint)
	}
	return h
}

// wantedValue describes the values that a flag accepts. The errors of package flag's own types are for programmers.
func wantedValue(invalid *pflag.InvalidValueError) error {
	switch invalid.GetFlag().Value.Type() {
	case "bool":
		return errors.New("must be true or false")
	case "duration":
		return errors.New("must be a duration such as 90s or 10m")
	}
	return invalid.Unwrap()
}

// nearestFlag returns the flag of a command that was probably meant.
func nearestFlag(cmd *cobra.Command, word string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return nearestWord(word, names)
}
