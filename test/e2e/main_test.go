// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
