// SPDX-License-Identifier: Apache-2.0

// Package cdiedits turns the containerEdits of CDI spec files into edits of a container.
//
// Device nodes get what a spec file leaves out from the node on the host: type, numbers and
// mode (CDI specification, "deviceNodes"). The host is read each time, since a driver that is
// loaded again gives its nodes other numbers.
// [CheckHost] checks edits of files against the host before a container is created.
package cdiedits
