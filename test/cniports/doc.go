// SPDX-License-Identifier: Apache-2.0

// Package cniports tests the ports of the CNI plugin on a real Open vSwitch.
package cniports
