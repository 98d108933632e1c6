// SPDX-License-Identifier: Apache-2.0

// Command shell runs a shell in the machine of package vm, with containerd, Jackfield and a pod that has a VF.
package main

import (
	"os"

	"github.com/jackfield/jackfield/test/vm"
)

func main() { os.Exit(vm.Shell()) }
