// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// userID is the uid and gid of the ordinary user, and subIDs the first of that user's 65,536 subordinate IDs.
const (
	userID = 1000
	subIDs = 100000
)

// user is an unprivileged user of the jail who runs Podman.
type user struct {
	*host
	home, run string // directories: the user's home, and the runtime directory of the login
}

// user creates the user alice with a range of subordinate IDs, and copies Podman and its programs for her,
// because she may not be able to read the cache.
func (h *host) user() *user {
	h.t.Helper()
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
	h.mkdir("bin")
	for name, from := range map[string]string{"podman": h.kit.Podman, "conmon": h.kit.Conmon, "crun": h.kit.Crun, "runc": h.common.Runc,
		"jackfield-hook": h.hookCommand(), "newuidmap": h.kit.Uidmap + "/newuidmap", "newgidmap": h.kit.Uidmap + "/newgidmap"} {
		mode := os.FileMode(0o755)
		if strings.HasPrefix(name, "new") {
			mode |= os.ModeSetuid
		}
		h.copyProgram(from, filepath.Join(h.path("bin"), name), mode)
	}
	h.rootfs()
	h.write("home/.config/containers/containers.conf", fmt.Sprintf("[engine]\nconmon_path = [%q]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n"+
		"[engine.runtimes]\nrunc = [%q]\ncrun = [%q]\n", h.path("bin/conmon"), h.path("bin/runc"), h.path("bin/crun")))
	h.write("home/.config/containers/storage.conf", "[storage]\ndriver = \"vfs\"\n")
	if err := os.MkdirAll(filepath.Dir(u.run), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Mkdir(u.run, 0o700); err != nil {
		h.t.Fatal(err)
	}
	u.chownToUser(u.run)
	u.chownToUser(u.home)
	u.chownToUser(h.path("rootfs"))
	h.t.Cleanup(u.logout)
	return u
}

// replace replaces a file until the test ends.
func (h *host) replace(name, text string) {
	h.t.Helper()
	saved := name + ".saved"
	if err := os.Rename(name, saved); err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := os.Remove(name); err != nil {
			h.t.Error(err)
		}
		if err := os.Rename(saved, name); err != nil && !os.IsNotExist(err) {
			h.t.Error(err)
		}
	})
}

func (h *host) copyProgram(from, to string, mode os.FileMode) {
	h.t.Helper()
	in, err := os.Open(from)
	if err != nil {
		h.t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err == nil {
		_, err = io.Copy(out, in)
	}
	if err == nil {
		err = out.Chmod(mode)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// chownToUser gives a tree to the user.
func (u *user) chownToUser(dir string) {
	u.t.Helper()
	err := filepath.Walk(dir, func(name string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, userID, userID)
	})
	if err != nil {
		u.t.Fatal(err)
	}
}

// configureUser moves the configuration to the user's directory, or, with system, to the system's. The
// configuration then has no paths of state.
func (u *user) configureUser(system bool) {
	u.t.Helper()
	data, err := os.ReadFile(u.path("config.yaml"))
	if err != nil {
		u.t.Fatal(err)
	}
	text := strings.Replace(string(data), "stateDir: "+u.path("state")+"\n", "", 1)
	if !system {
		u.write("home/.config/jackfield/config.yaml", text)
		return
	}
	if err := os.MkdirAll("/etc/jackfield", 0o755); err != nil {
		u.t.Fatal(err)
	}
	u.replace("/etc/jackfield/config.yaml", text+"stateDir: /var/lib/jackfield\n")
}

// hooks returns a hooks.d directory whose file names the stages and no configuration or directory.
func (u *user) hooks(dir string, stages ...string) string {
	u.t.Helper()
	args := []string{"jackfield-hook", "--log", filepath.Join(u.run, "hook.log")}
	if len(stages) == 1 {
		args = append(args, stages[0])
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0.0",
		"hook":    map[string]any{"path": u.path("bin/jackfield-hook"), "args": args},
		"when":    map[string]any{"annotations": map[string]string{`^(devices|networks)\.jackfield\.dev(/.*)?$`: ".*"}},
		"stages":  stages,
	})
	if err != nil {
		u.t.Fatal(err)
	}
	u.write(dir+"/jackfield.json", string(data))
	return u.path(dir)
}

// podman returns a command of Podman for the user.
func (u *user) podman(runtime, hooks, command string, args ...string) *exec.Cmd {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	u.t.Cleanup(cancel)
	all := []string{"--runtime", runtime}
	if hooks != "" {
		all = append(all, "--hooks-dir", hooks, "--hooks-dir", u.recordConfigurations())
		u.chownToUser(u.path("configurations"))
	}
	cmd := exec.CommandContext(ctx, u.path("bin/podman"), append(append(all, command), args...)...)
	cmd.Dir = u.home
	cmd.Env = []string{"PATH=" + u.path("bin") + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + u.home, "XDG_RUNTIME_DIR=" + u.run, "USER=alice"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID}}
	cmd.WaitDelay = time.Minute
	return cmd
}

// runPodman runs `podman run` to its end.
func (u *user) runPodman(runtime, hooks string, args ...string) (string, error) {
	u.t.Helper()
	out, err := u.podman(runtime, hooks, "run", append([]string{"--rm", "--network", "none"}, args...)...).CombinedOutput()
	u.checkConfigurations()
	return string(out), err
}

// log returns the hook's log.
func (u *user) log() string {
	data, err := os.ReadFile(filepath.Join(u.run, "hook.log"))
	if err != nil && !os.IsNotExist(err) {
		u.t.Error(err)
	}
	return string(data)
}

// logout ends the processes of Podman that hold its user namespace, and checks that nothing is left.
func (u *user) logout() {
	if u.t.Failed() {
		u.t.Logf("the hook's log:\n%s", u.log())
	}
	if out, err := u.podman("runc", "", "system", "migrate").CombinedOutput(); err != nil {
		u.t.Errorf("podman system migrate: %v: %s", err, out)
	}
	for _, dir := range []string{"hook/containers", "hook/sandboxes", "claims"} {
		left, err := filepath.Glob(filepath.Join(u.run, "jackfield", dir, "*"))
		if err != nil || len(left) > 0 {
			u.t.Errorf("left behind: %v, %v", left, err)
		}
	}
	var left []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = u.processes(); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		u.t.Errorf("left behind: processes %v", left)
	}
	if err := os.RemoveAll(u.run); err != nil {
		u.t.Error(err)
	}
}

// processes returns the processes of the user and of the subordinate IDs.
func (u *user) processes() []string {
	files, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		u.t.Error(err)
	}
	var found []string
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			continue
		}
		uid := st.Sys().(*syscall.Stat_t).Uid
		if text, err := os.ReadFile(f + "/cmdline"); err == nil && (uid == userID || uid >= subIDs && uid < subIDs+65536) {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}
