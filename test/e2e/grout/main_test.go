// SPDX-License-Identifier: Apache-2.0

package grout_test

import (
	"testing"

	"github.com/jackfield/jackfield/test/e2e/grout"
)

func TestMain(m *testing.M) { grout.Main(m) }
