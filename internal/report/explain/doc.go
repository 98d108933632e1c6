// SPDX-License-Identifier: Apache-2.0

// Package explain resolves the edits that the containers of a pod would get on a node, and reads those that containers
// of the node got.
//
// A container is explained as the NRI plugin would create it, and nothing on the node changes. A request that cannot be
// checked is reported with the reason, and never as if it were injected.
package explain
