// SPDX-License-Identifier: Apache-2.0

// Package schema reads YAML into the tree of [jsontree], and decodes such a tree by a schema: objects with permitted
// keys, whose values have readers. All faults are collected with their places, so that a user can correct a file in one
// pass.
package schema
