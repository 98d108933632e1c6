// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminal makes a pseudo-terminal and appends what is written to it to the file
// log. It returns the path to write to, and a channel that is closed when the last
// writer is gone and everything is in the file. The C library keeps back what it
// writes to a file or pipe until 4 KiB are together, so that answers to commands
// would not be seen.
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
		// It ends with EIO, once the other side was opened and is closed.
		_, _ = io.Copy(file, master)
	}()
	return fmt.Sprintf("/dev/pts/%d", n), ended, nil
}
