// SPDX-License-Identifier: Apache-2.0

// Command jackfield-run starts a program in a container of an image without a shell. It replaces variables such as
// $(JACKFIELD_NET1_EAL) in the program's arguments, which the kubelet cannot do, because Jackfield adds them later.
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
