// SPDX-License-Identifier: Apache-2.0

// Package script tests the jackfield command with the txtar scripts in testdata. Each has the files of
// a host, command lines, and their exact output. The scripts run the test binary as the command.
//
// Script commands create what a txtar archive cannot hold: mknod, mkfifo, mksock (a socket that listens
// until the script ends), leavesock and aged. The command root skips a script that needs root.
//
// `go test ./script -update` writes the output of the commands into the scripts.
package script
