// SPDX-License-Identifier: Apache-2.0

// Command noop is the plugin that does nothing, in a process of its own. As
// "noop SOCKET INDEX NAME" it connects to a runtime and ends when its standard
// input does; without arguments it is a pre-installed plugin, which the runtime
// starts and ends.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	nritest "github.com/jackfield/jackfield/test/nri"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"", "", ""}
	}
	if len(args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: noop [SOCKET INDEX NAME]")
		os.Exit(2)
	}
	stop, err := nritest.StartPlugin(context.Background(), args[0], args[1], args[2], nritest.Noop{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
		os.Exit(1)
	}
	defer stop()
	if args[0] == "" {
		select {}
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
	}
}
