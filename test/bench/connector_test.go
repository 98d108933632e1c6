// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/staging"
)

// asConnector makes the test binary the connector.
const asConnector = "JACKFIELD_BENCH_CONNECTOR"

// between is how long a container waits until it tries to connect again.
const between = 100 * time.Microsecond

// connector is the containers' side: another process than the plugin, as they are,
// which sleeps while it waits, so that it takes no processor from the plugin.
type connector struct {
	in  io.Writer
	out io.Reader
}

func startConnector(b *testing.B) *connector {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asConnector+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		must(b, cmd.Wait())
	})
	c := &connector{in, out}
	_, _ = c.answer(b) // it is ready
	return c
}

// ask has it connect from inside one container, until that works, and then from
// each of the others.
func (c *connector) ask(b *testing.B, container int) {
	_, err := c.in.Write([]byte{byte(container)})
	must(b, err)
}

// answer is when it had connected from the one container, and when from all.
func (c *connector) answer(b *testing.B) (one, all time.Duration) {
	var t [2]int64
	must(b, binary.Read(c.out, binary.NativeEndian, &t))
	return time.Duration(t[0]), time.Duration(t[1])
}

// monotonic is a clock that all processes share.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}

// connect is the connector. It ends with its standard input.
func connect() error {
	// Inside a container is where a directory of its mounts is, whoever looks there.
	dirs := make([]string, rebindContainers)
	for i := range dirs {
		fd, err := inside(staging.ContainerDir("/run/jackfield", fmt.Sprint("c", i)))
		if err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		dirs[i] = fmt.Sprintf("/proc/self/fd/%d/vhost.sock", fd)
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return err
	}
	until := func(path string) {
		rest := unix.NsecToTimespec(int64(between))
		for !connects(path) {
			_ = unix.Nanosleep(&rest, nil)
		}
	}
	var t [2]int64
	for {
		if err := binary.Write(os.Stdout, binary.NativeEndian, t); err != nil {
			return err
		}
		var which [1]byte
		if n, err := unix.Read(0, which[:]); n <= 0 {
			return err
		}
		until(dirs[which[0]])
		t[0] = int64(monotonic())
		for _, d := range dirs {
			until(d)
		}
		t[1] = int64(monotonic())
	}
}

func connects(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) == nil
}

// inside makes a mount namespace, which a thread keeps, with a staging directory as a
// container has it, and opens the directory of the socket there.
func inside(dir string) (int, error) {
	type opened struct {
		fd  int
		err error
	}
	ready := make(chan opened)
	var thread func()
	thread = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread's view is /proc/self's.
			go thread()
			runtime.Gosched()
			runtime.UnlockOSThread()
			return
		}
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
		}
		if err == nil {
			err = unix.Mount(dir, "/mnt", "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err == nil {
			// What a container does not have.
			err = unix.Unmount("/run/jackfield/containers", unix.MNT_DETACH)
		}
		fd := -1
		if err == nil {
			fd, err = unix.Open("/mnt/net/net1", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if ready <- (opened{fd, err}); err == nil {
			select {} // the namespace ends with its last thread
		}
	}
	go thread()
	o := <-ready
	return o.fd, o.err
}
