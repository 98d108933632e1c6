// SPDX-License-Identifier: Apache-2.0

// Package script tests the jackfield command from outside, by txtar scripts in
// testdata: each holds a host's tree, command lines, and the output they must
// give to the byte. The test binary itself is the command that they run.
//
// What a txtar archive cannot hold is made by commands of the scripts: mknod,
// mkfifo, mksock (a socket that listens until the script ends) and aged. The command
// root ends a script that an ordinary user cannot run.
//
// `go test ./script -update` writes the output of the commands into the scripts.
package script
