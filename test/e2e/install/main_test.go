// SPDX-License-Identifier: Apache-2.0

package install

import "testing"

func TestMain(m *testing.M) { Main(m) }
