// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package critest requires what the tests of cri-tools import, so that go mod tidy keeps it.
package critest

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
	_ "sigs.k8s.io/cri-tools/pkg/version"
)
