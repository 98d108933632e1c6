// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"testing"

	"github.com/jackfield/jackfield/test/e2e/dpdk"
)

func TestMain(m *testing.M) { dpdk.Main(m) }
