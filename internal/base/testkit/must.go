// SPDX-License-Identifier: Apache-2.0

package testkit

import "testing"

// Must ends the test at the first error that is not nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
