// SPDX-License-Identifier: Apache-2.0

// Command hostsocket is a client of a socket of the host, for a container, or the SPIFFE server, for the host. It is
// linked statically and needs no other file.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackfield/jackfield/test/hostsocket"
)

const usage = `usage: hostsocket spiffe|ovsdb|block PATH    print a line for each connection that works, until SIGTERM
       hostsocket serve-spiffe PATH NAME      serve the SPIFFE Workload API, until SIGTERM
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "spiffe":
		err = hostsocket.WatchSPIFFE(ctx, args[1], os.Stdout)
	case len(args) == 2 && args[0] == "ovsdb":
		err = hostsocket.WatchOVSDB(ctx, args[1], os.Stdout)
	case len(args) == 2 && args[0] == "block":
		err = hostsocket.WatchBlockDevice(ctx, args[1], os.Stdout)
	case len(args) == 3 && args[0] == "serve-spiffe":
		err = hostsocket.ServeSPIFFE(ctx, args[1], args[2])
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "hostsocket:", err)
		os.Exit(1)
	}
}
