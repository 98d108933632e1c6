// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"sync"
)

// lazy is an expression that is compiled when it is first used. Compiling all of
// them would cost every run of every command a millisecond, which is a quarter of
// what inject takes.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
