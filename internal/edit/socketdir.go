// SPDX-License-Identifier: Apache-2.0

package edit

// DirState is the relation of a socket directory to a sandbox.
type DirState int

const (
	// MissingDir is a directory that does not exist yet. It is created for the sandbox.
	MissingDir DirState = iota
	// OwnDir was created for the sandbox, by any adapter.
	OwnDir
	// ForeignDir existed before the sandbox, or replaced the sandbox's own directory.
	ForeignDir
)
