// SPDX-License-Identifier: Apache-2.0

// Command jackfield-run starts a program in a container whose image has no shell. It replaces
// variables such as $(JACKFIELD_NET1_EAL) in the program's arguments. The kubelet cannot do that,
// because Jackfield adds the variables later.
package main

import (
	"fmt"
	"os"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "jackfield-run:", err)
	}
	os.Exit(status)
}
