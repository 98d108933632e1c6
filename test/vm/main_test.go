// SPDX-License-Identifier: Apache-2.0

package vm

import "testing"

func TestMain(m *testing.M) { Main(m) }
