// SPDX-License-Identifier: Apache-2.0

package hook

import "testing"

func TestMain(m *testing.M) { Main(m) }
