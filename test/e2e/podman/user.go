// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// userID is the uid and gid of the ordinary user, and subIDs the first of that user's 65,536 subordinate IDs.
const (
	userID = 1000
	subIDs = 100000
)

// user is an ordinary user of the jail who runs Podman.
type user struct {
	*host
	home, run string // directories: the user's home, and the runtime directory of the login
}

// newUser creates the user alice, with the configuration of the how-to page.
func (h *host) newUser() *user {
	h.t.Helper()
	mountTun(h.t)
	u := &user{host: h, home: h.path("home"), run: "/run/user/" + strconv.Itoa(userID)}
	// The jail's /etc has links to the machine's files.
	for name, text := range map[string]string{
		"passwd": fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\nalice:x:%d:%d::%s:/bin/sh\n", userID, userID, u.home),
		"group":  fmt.Sprintf("root:x:0:\nalice:x:%d:\n", userID),
		"subuid": fmt.Sprintf("alice:%d:65536\n", subIDs),
		"subgid": fmt.Sprintf("alice:%d:65536\n", subIDs),
	} {
		h.replace(filepath.Join("/etc", name), text)
	}
	// The user runs grcli.
	if err := os.Chmod(filepath.Dir(filepath.Dir(h.grout.Grcli)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.write("home/.config/containers/storage.conf", "[storage]\ndriver = \"vfs\"\n")
	h.write("home/.config/containers/containers.conf", "[network]\nnetwork_config_dir = \""+u.home+"/networks\"\n")
	h.write("home/.config/jackfield/config.yaml", h.pageConfig(1))
	if err := os.MkdirAll(u.run, 0o755); err != nil {
		h.t.Fatal(err)
	}
	for _, dir := range []string{u.run, u.home, h.path("rootfs")} {
		err := filepath.Walk(dir, func(name string, _ os.FileInfo, err error) error {
			return errors.Join(err, os.Lchown(name, userID, userID))
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	h.t.Cleanup(u.logout)
	return u
}

// replace replaces a file until the test ends.
func (h *host) replace(name, text string) {
	h.t.Helper()
	saved := name + ".saved"
	if err := os.Rename(name, saved); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
	h.write(name, text)
	h.t.Cleanup(func() {
		if err := os.Rename(saved, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.t.Error(err)
		}
	})
}

// podman runs a command of the user's Podman and returns what it prints.
func (u *user) podman(args ...string) (string, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/podman", args...)
	cmd.Dir = u.home
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + u.home, "XDG_RUNTIME_DIR=" + u.run, "USER=alice", "PODMAN_IGNORE_CGROUPSV1_WARNING=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID}}
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (u *user) must(args ...string) string {
	u.t.Helper()
	out, err := u.podman(args...)
	if err != nil {
		u.t.Fatalf("podman %q: %v: %s", args, err, out)
	}
	return out
}

// options returns the options of a container, which cannot have a cgroup, with the root file system and a command of
// sh at the end.
func (u *user) options(command string, more ...string) []string {
	return append(append([]string{"--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--security-opt", "seccomp=unconfined"}, more...),
		"--rootfs", u.path("rootfs"), "/bin/sh", "-c", command)
}

// checkGone waits until no port is left, and nothing in the user's directories.
func (u *user) checkGone() {
	u.t.Helper()
	u.checkEmpty(filepath.Join(u.run, "jackfield/cni"), filepath.Join(u.run, "jackfield/sockets"), filepath.Join(u.run, "jackfield/devinfo"),
		filepath.Join(u.run, "jackfield/claims"), filepath.Join(u.run, "jackfield/hook/containers"))
}

// logout ends the processes of Podman that hold its user namespace.
func (u *user) logout() {
	for _, args := range [][]string{{"rm", "--all", "--force", "--time", "0"}, {"system", "migrate"}} {
		if out, err := u.podman(args...); err != nil {
			u.t.Errorf("podman %q: %v: %s", args, err, out)
		}
	}
	if err := os.RemoveAll(u.run); err != nil {
		u.t.Error(err)
	}
}

// mountTun gives all users the kernel's TUN device, which pasta needs and this machine may keep for root.
func mountTun(t *testing.T) {
	t.Helper()
	if err := unix.Mount("tmpfs", "/dev/net", "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/dev/net", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("/dev/net/tun", 0o666); err != nil {
		t.Fatal(err)
	}
}
