// SPDX-License-Identifier: Apache-2.0

package netavark

const usage = `jackfield-netavark is a plugin of netavark, the network program of Podman. Netavark runs it
for networks that were created with the driver jackfield-netavark:

  podman network create --driver jackfield-netavark --opt type=vhost-user \
      --opt mode=server fast

Usage:
  jackfield-netavark [info]
  jackfield-netavark create
  jackfield-netavark setup NETNS
  jackfield-netavark teardown NETNS

Commands:
  info      Print the versions of the plugin and of netavark's plugin API
  create    Check a new network
  setup     Attach a container to a network
  teardown  Detach a container from a network

NETNS is the path of the container's network namespace. All commands but info read JSON
from standard input. Results and errors are printed to standard output as JSON.

Flags:
  -h, --help   print this help
  --version    print the version

Exit status: 0 success; 1 error; 2 mistake in the command line.
Learn more: jackfield-netavark(8), https://github.com/jackfield/jackfield
`

// UsageError is an error in the flags of the command line. Its reader is a user, because netavark
// passes no flags.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }
