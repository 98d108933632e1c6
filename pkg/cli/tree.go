// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// Command is the tree of jackfield's commands, for what writes about it: man
// pages, and tests of the documentation. Run executes it.
func Command(env Env) *cobra.Command { return command(env) }
