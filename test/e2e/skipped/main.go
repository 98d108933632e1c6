// SPDX-License-Identifier: Apache-2.0

// Command skipped prints why tests on real container runtimes are skipped here. Without -v, `go test` does
// not print the reasons.
package main

import (
	"flag"
	"fmt"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
)

func main() {
	testing.Init() // defines the flags of tests, for example -short
	flag.Parse()
	if why := e2e.Impossible(); why != nil {
		fmt.Printf("skipped: the tests on real container runtimes (%v); `go test -v` gives the reason of each other test that is skipped\n", why)
	}
}
