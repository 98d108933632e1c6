// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

// asConnector is the environment variable that turns the test binary into the connector. Its value is the state
// directory with the containers' directories.
const asConnector = "JACKFIELD_BENCH_CONNECTOR"

// retryInterval is how long a container waits before it tries to connect again.
const retryInterval = 100 * time.Microsecond

// connector connects to the sockets in the containers. It is a separate process and sleeps between its
// tries, so that it takes no processor time from the plugin.
type connector struct {
	in  io.Writer
	out io.Reader
}

func startConnector(b *testing.B, stateDir string) *connector {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asConnector+"="+stateDir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	testkit.Must(b, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(b, err)
	testkit.Must(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		testkit.Must(b, cmd.Wait())
	})
	c := &connector{in, out}
	c.connectedAt(b) // the first value reports that the connector is ready
	return c
}

// request makes the connector try to connect from inside a container until it succeeds.
func (c *connector) request(b *testing.B, container int) {
	_, err := c.in.Write([]byte{byte(container)})
	testkit.Must(b, err)
}

// connectedAt waits until the container is connected and returns the time, from [monotonic].
func (c *connector) connectedAt(b *testing.B) time.Duration {
	var t int64
	testkit.Must(b, binary.Read(c.out, binary.NativeEndian, &t))
	return time.Duration(t)
}

// monotonic returns the time of a clock that all processes share.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}

// connect runs the connector until its standard input ends.
func connect() error {
	// A descriptor of a directory leads to the mounts of the namespace it was opened in.
	sockets, stateDir := make([]string, rebindContainers), os.Getenv(asConnector)
	for i := range sockets {
		fd, err := openInContainer(stateDir, edit.ContainerDir(stateDir, fmt.Sprint("c", i)))
		if err != nil {
			return fmt.Errorf("create a mount namespace: %w", err)
		}
		sockets[i] = fmt.Sprintf("/proc/self/fd/%d/vhost.sock", fd)
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return err
	}
	var t int64
	for {
		if err := binary.Write(os.Stdout, binary.NativeEndian, t); err != nil {
			return err
		}
		var container [1]byte
		if n, err := unix.Read(0, container[:]); n <= 0 {
			return err
		}
		for !connects(sockets[container[0]]) {
			pause := unix.NsecToTimespec(int64(retryInterval))
			_ = unix.Nanosleep(&pause, nil)
		}
		t = int64(monotonic())
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

// openInContainer creates a mount namespace, mounts a staging directory there as in a container, and
// opens the socket's directory. A thread keeps the namespace alive.
func openInContainer(stateDir, dir string) (int, error) {
	type opened struct {
		fd  int
		err error
	}
	ready := make(chan opened)
	var thread func()
	thread = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread must stay, because /proc/self shows its namespaces.
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
			// A container does not see the other containers' directories.
			err = unix.Unmount(filepath.Join(stateDir, "containers"), unix.MNT_DETACH)
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
