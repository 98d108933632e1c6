// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs a command on a terminal that belongs to uid, and returns what the terminal shows.
func onTerminal(t *testing.T, cmd *exec.Cmd, uid int) (string, error) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(name, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	err = cmd.Start()
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		var text strings.Builder
		buf := make([]byte, 4096)
		for {
			// EIO means that no process has the other side open any more.
			n, err := master.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				read <- text.String()
				return
			}
		}
	}()
	err = cmd.Wait()
	return strings.ReplaceAll(<-read, "\r\n", "\n"), err
}
