// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminal creates a pseudo-terminal and appends its output to the file log. It returns the path to
// write to, and a channel that is closed once the last writer has closed it and all output is in
// the file. The C library buffers up to 4 KiB of output to a file or pipe, which would delay
// the answers to commands.
func terminal(log string) (path string, done <-chan struct{}, err error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", nil, fmt.Errorf("make terminal: %w", err)
	}
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	conn, err := master.SyscallConn()
	if err != nil {
		return "", nil, fmt.Errorf("make terminal: %w", err)
	}
	var n int
	var errs error
	err = conn.Control(func(fd uintptr) {
		var mode *unix.Termios
		var e [4]error
		e[0] = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		n, e[1] = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		if mode, e[2] = unix.IoctlGetTermios(int(fd), unix.TCGETS); e[2] == nil {
			mode.Oflag &^= unix.OPOST // no carriage returns
			e[3] = unix.IoctlSetTermios(int(fd), unix.TCSETS, mode)
		}
		errs = errors.Join(e[:]...)
	})
	if err = errors.Join(err, errs); err != nil {
		return "", nil, fmt.Errorf("make terminal: %w", err)
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", nil, fmt.Errorf("make terminal: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer master.Close()
		defer file.Close()
		// Read fails with EIO once the other side has been opened and closed.
		_, _ = io.Copy(file, master)
	}()
	return fmt.Sprintf("/dev/pts/%d", n), ended, nil
}
