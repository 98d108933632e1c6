// SPDX-License-Identifier: Apache-2.0

// Package cdiedits turns the containerEdits of CDI spec files into edits of a container.
//
// Device nodes get type, numbers and mode from the node on the host if the spec file omits them (CDI specification,
// "deviceNodes"). The host is read each time, because the nodes of a reloaded driver have other numbers.
// [CheckHost] checks edits of files against the host before a container is created.
package cdiedits
