// SPDX-License-Identifier: Apache-2.0

// Package kit has the tests of the tenant's kit in containers of a real containerd.
package kit
