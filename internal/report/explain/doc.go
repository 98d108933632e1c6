// SPDX-License-Identifier: Apache-2.0

// Package explain resolves what the containers of a pod would get on a node, and reads what containers of the
// node got.
//
// A container is explained as the NRI plugin would create it, and nothing on the node changes. What cannot be
// checked is reported with what is needed for that, and never as if it were injected.
package explain
