// SPDX-License-Identifier: Apache-2.0

// Package named has the tests of named sockets: real servers of the host are killed and started again under running
// containers of a real containerd.
package named
