// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jackfield/jackfield/pkg/wording"
)

// nearestWord is the candidate that a word was probably meant to be: the closest one, or else the first that begins with it.
// It is "" where there is none.
func nearestWord(word string, candidates []string) string {
	if near := wording.Nearest(word, candidates...); near != "" || word == "" {
		return near
	}
	if i := slices.IndexFunc(candidates, func(c string) bool { return strings.HasPrefix(c, word) }); i >= 0 {
		return candidates[i]
	}
	return ""
}

// flagError is a usage error about the flags of a command. Of a flag that does not exist the hint names the one that may have been meant.
func flagError(cmd *cobra.Command, err error) error {
	h := &hinted{err: err, hint: seeHelp(cmd), usage: true}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return h
	}
	if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
		h.hint = fmt.Sprintf("did you mean `--%s`? %s", near, h.hint)
	}
	return h
}

// nearestFlag is the flag of a command that was probably meant: the closest one, or else the first that has the word between its dashes.
func nearestFlag(cmd *cobra.Command, word string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := nearestWord(word, names); near != "" {
		return near
	}
	if i := slices.IndexFunc(names, func(name string) bool { return slices.Contains(strings.Split(name, "-"), word) }); i >= 0 {
		return names[i]
	}
	return ""
}
