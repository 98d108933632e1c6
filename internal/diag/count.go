// SPDX-License-Identifier: Apache-2.0

package diag

import "fmt"

// Count is "1 device" or "2 devices".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
