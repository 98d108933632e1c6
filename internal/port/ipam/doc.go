// SPDX-License-Identifier: Apache-2.0

// Package ipam runs IPAM plugins, which allocate and release the addresses of attachments (CNI Specification, section
// 4).
//
// The CNI plugin runs them for an operation of the runtime. The NRI plugin and jackfield doctor run them to release the
// addresses that a removed sandbox left, as its record says.
package ipam
