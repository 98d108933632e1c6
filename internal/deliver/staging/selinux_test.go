// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

// Where SELinux is on, a socket gets the configured label, also after it was re-created. Where
// SELinux is off, its label stays. The test fakes SELinux by a file of its mount namespace.
func TestSocketGetsSELinuxLabel(t *testing.T) {
	const label = "system_u:object_r:container_file_t:s0"
	n := newNode(t)
	has := func(path string) string {
		have := make([]byte, 256)
		l, err := unix.Getxattr(path, "security.selinux", have)
		if err != nil {
			return ""
		}
		return string(bytes.TrimRight(have[:l], "\x00"))
	}
	n.listen("run/vsw/off/a.sock", "x")
	c := newContainer("c-off", "s1", "off/a.sock")
	c.Label = label
	c.Sockets[0].Access = edit.Access{Label: label}
	testkit.Must(t, n.Prepare(c))
	if got := has(n.path("run/vsw/off/a.sock")); got != "" {
		t.Errorf("SELinux is off, and the label is %q", got)
	}
	if got := has(n.stagedPath(c.ID, "")); got != "" {
		t.Errorf("SELinux is off, and the label of the directory is %q", got)
	}

	testkit.Must(t, unix.Mount("test", "/sys/fs", "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { testkit.Must(t, unix.Unmount("/sys/fs", unix.MNT_DETACH)) })
	testkit.Must(t, os.Mkdir("/sys/fs/selinux", 0o755))
	testkit.Must(t, os.WriteFile("/sys/fs/selinux/enforce", []byte("1"), 0o644))
	n.listen("run/vsw/on/a.sock", "x")
	c = newContainer("c-on", "s1", "on/a.sock")
	c.Label = label
	c.Sockets[0].Access = edit.Access{Label: label}
	testkit.Must(t, n.Prepare(c))
	at := n.stagedPath(c.ID, "net/net1/a.sock")
	if got := has(at); got != label {
		t.Errorf("the label is %q", got)
	}
	// The container can list and watch its directory.
	for _, dir := range []string{"..", "", "net/net1"} {
		if got := has(n.stagedPath(c.ID, dir)); got != label {
			t.Errorf("the label of the directory %q is %q", dir, got)
		}
	}
	n.listen("run/vsw/on/a.sock", "again")
	n.waitUntil(func() bool { return has(n.path("run/vsw/on/a.sock")) == label && has(at) == label }, "the re-created socket has no label")
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
}
