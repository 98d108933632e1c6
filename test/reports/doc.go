// SPDX-License-Identifier: Apache-2.0

// Package reports runs the real programs on inputs of the kinds that users of CDI, NRI, Multus, vswitches and Podman
// reported as bugs. Each script in testdata has the files of a node, and states the result that its user needs.
//
// A script's directory is the node: etc, run and var are its /etc, /run and /var. `exec node PROGRAM` runs a program
// with them. Script commands:
//
//	node            only for exec, see above
//	mknod FILE MAJOR MINOR
//	mksock FILE     leaves a socket on which nobody listens
//	runtime [VERSION]
//	                starts the runtime's side of NRI and jackfield-nri
//	pod FILE        reads a pod with one container from a JSON file, and sets CNI_CONTAINERID
//	create          creates the container, and prints its OCI specification
//	remove container|pod
//	                removes it
//	gone DIR...     waits until there are no files below the directories but locks
package reports
