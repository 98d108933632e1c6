// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"flag"
	"os"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// Parallel tests here wait for something that never answers, and need no processor.
func TestMain(m *testing.M) {
	flag.Parse()
	named := false
	flag.Visit(func(f *flag.Flag) { named = named || f.Name == "test.parallel" })
	if !named {
		_ = flag.Set("test.parallel", "8")
	}
	os.Exit(m.Run())
}

// check is testkit.Must under a short name, because most lines here need it.
func check(t testing.TB, errs ...error) {
	t.Helper()
	testkit.Must(t, errs...)
}
