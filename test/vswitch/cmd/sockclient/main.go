// SPDX-License-Identifier: Apache-2.0

// Command sockclient is the application in a test container. It connects to a vswitch's socket, or
// creates a socket that a vswitch connects to. It is linked statically and needs no other file.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackfield/jackfield/test/vswitch"
)

const usage = `usage: sockclient connect PATH              print the line that PATH answers with
       sockclient listen PATH REPLY [COUNT]  make PATH, answer COUNT connections (for ever)
       sockclient memif PATH REPLY [COUNT]   the same with a packet socket
       sockclient attack DIR NAME SECRET     do in DIR what its owner should not, until SIGTERM
       sockclient pause                      wait for SIGTERM
`

var errUsage = errors.New("bad usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "sockclient:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "connect":
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		answer, err := vswitch.Ask(ctx, args[1])
		if err == nil {
			fmt.Fprintln(out, answer)
		}
		return err
	case len(args) >= 3 && len(args) <= 4 && args[0] == "listen":
		return listen(ctx, vswitch.VhostUser, args[1:], out)
	case len(args) >= 3 && len(args) <= 4 && args[0] == "memif":
		return listen(ctx, vswitch.Memif, args[1:], out)
	case len(args) == 4 && args[0] == "attack":
		return attack(ctx, args[1], args[2], args[3], out)
	case len(args) == 1 && args[0] == "pause":
		<-ctx.Done()
		return nil
	}
	return errUsage
}

// listen answers until count connections had their answer, or ctx is done.
func listen(ctx context.Context, kind vswitch.Kind, args []string, out io.Writer) error {
	count := 0
	if len(args) == 3 {
		n, err := strconv.Atoi(args[2])
		if err != nil || n < 1 {
			return errUsage
		}
		count = n
	}
	s, err := vswitch.Listen(kind, args[0], args[1])
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintln(out, "listening on", args[0])
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for count == 0 || s.Answered() < count {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}
