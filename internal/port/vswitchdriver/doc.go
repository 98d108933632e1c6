// SPDX-License-Identifier: Apache-2.0

// Package vswitchdriver returns the driver of a vswitch in the node's configuration.
package vswitchdriver
