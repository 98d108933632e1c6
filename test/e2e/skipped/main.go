// SPDX-License-Identifier: Apache-2.0

// Command skipped says why the tests on real container runtimes do not run here, where
// they do not: `go test` shows the reasons of what is skipped with -v alone.
package main

import (
	"flag"
	"fmt"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
)

func main() {
	testing.Init() // for the flags that a test has, -short among them
	flag.Parse()
	if why := e2e.Impossible(); why != nil {
		fmt.Printf("skipped: the tests on real container runtimes (%v); `go test -v` gives the reason of each other test that is skipped\n", why)
	}
}
