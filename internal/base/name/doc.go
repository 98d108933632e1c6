// SPDX-License-Identifier: Apache-2.0

// Package name checks names by the rules of Kubernetes and of the kernel, and names ports of virtual switches.
package name
