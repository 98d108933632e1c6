// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rootless runs a test for an unprivileged user with each runtime.
func rootless(t *testing.T, f func(t *testing.T, u *user, runtime string)) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			u := newHost(t).user()
			u.configureUser(false)
			f(t, u, name)
		})
	}
}

// allowDeviceHook creates a directory that the CDI device's own hook, which runs as the user, can write.
func (u *user) allowDeviceHook() {
	u.write("hook-ran", "")
	u.chownToUser(u.path("hook-ran"))
}

// At precreate an unprivileged user's container gets everything: variable, mount, hook, and the host's device
// node. The user cannot create device nodes, so the owner and mode of the host's node decide on access.
func TestRootlessPrecreateDeliversAll(t *testing.T) {
	rootless(t, func(t *testing.T, u *user, runtime string) {
		u.allowDeviceHook()
		dir := u.hooks("hooks", "precreate")
		out, err := u.runPodman(runtime, dir, u.requestOptions("echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1; cat /proc/self/uid_map", "full")...)
		u.checkPrinted(out, err, "FANCY=1", "00 00 00 00", "100000")
		if state, err := os.ReadFile(u.path("hook-ran")); err != nil || !strings.Contains(string(state), `"ociVersion"`) {
			t.Errorf("the device's hook read %q, %v", state, err)
		}
		out, err = u.runPodman(runtime, dir, u.requestOptions(readDevice, "zero")...)
		u.checkPrinted(out, err, "00 00 00 00", "from the host", "read-only")
		u.checkDeviceModes(t, runtime, dir)
	})
}

// Only the stages that every runtime has.
func TestRootlessCreateRuntime(t *testing.T) {
	for _, stage := range []string{"createRuntime", "prestart"} {
		t.Run(stage, func(t *testing.T) {
			rootless(t, func(t *testing.T, u *user, runtime string) {
				dir := u.hooks("hooks", stage, "poststop")
				out, err := u.runPodman(runtime, dir, append([]string{"--read-only"}, u.requestOptions(readDevice+"; touch /x || echo root is read-only", "zero")...)...)
				u.checkPrinted(out, err, "00 00 00 00", "from the host", "read-only", "root is read-only")
				u.checkDeviceModes(t, runtime, dir)
			})
		})
	}
}

// checkDeviceModes checks that an unprivileged user's container can use exactly those device nodes that the
// user can use.
func (u *user) checkDeviceModes(t *testing.T, runtime, dir string) {
	t.Helper()
	const open = "(: </dev/ctl) && echo opened; mknod /dev/other c 10 237; [ -c /dev/other ] || echo none other"
	out, err := u.runPodman(runtime, dir, u.requestOptions(open, "ctl")...)
	u.checkPrinted(out, err, "opened", "none other", "Operation not permitted")
	if err := os.Chmod(u.path("ctl0"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = u.runPodman(runtime, dir, u.requestOptions(open, "ctl")...)
	u.checkPrinted(out, err, "can't open /dev/ctl: Permission denied", "none other")
}

// The container gets a network's socket twice, with the user's configuration or the system's. State of the
// container is below /run/user. A socket without access for other users is not delivered.
func TestRootlessGetsSocketOfNetwork(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			for _, runtime := range []string{"runc", "crun"} {
				t.Run(runtime, func(t *testing.T) {
					u := newHost(t).user()
					u.configureUser(stages[0] == "precreate")
					dir := u.hooks("hooks", stages...)
					ask := u.requestOptions("sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /var/run/jackfield/devices.json")
					out, err := u.podman(runtime, dir, "create", append([]string{"--network", "none", "--annotation", "networks.jackfield.dev=net1"}, ask...)...).CombinedOutput()
					u.checkPrinted(string(out), err)
					id := strings.TrimSpace(string(out))
					u.socket(id)
					start := func() string {
						out, err := u.podman(runtime, dir, "start", "--attach", id).CombinedOutput()
						u.checkPrinted(string(out), err, `"/var/run/jackfield/net/net1/vhost.sock"`)
						return string(out)
					}
					if err := os.Chmod(u.path("sock/port0/vhost.sock"), 0o666); err != nil {
						t.Fatal(err)
					}
					for range 2 {
						if out := start(); !strings.Contains(out, "hello from vswitch") {
							t.Errorf("printed %q", out)
						}
					}
					if err := os.Chmod(u.path("sock/port0/vhost.sock"), 0o600); err != nil {
						t.Fatal(err)
					}
					if out := start(); !strings.Contains(out, "permission denied") {
						t.Errorf("printed %q", out)
					}
					out, err = u.podman(runtime, dir, "rm", id).CombinedOutput()
					u.checkPrinted(string(out), err)
					if _, err := os.Stat(filepath.Join(u.run, "jackfield/hook/staging.json")); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// A denied request, and edits that no user namespace allows, stop the container. The user reads the reason in
// the terminal.
func TestRootlessUserReadsRefusal(t *testing.T) {
	rootless(t, func(t *testing.T, u *user, runtime string) {
		u.write("cdi/made.json", `{"cdiVersion":"0.6.0","kind":"vendor.example.com/dev","devices":[
			{"name":"made","containerEdits":{"deviceNodes":[{"path":"/dev/made","type":"c","major":1,"minor":5}]}},
			{"name":"another","containerEdits":{"deviceNodes":[{"path":"/dev/fancy","hostPath":"`+u.path("fancy0")+`","type":"c","major":1,"minor":8}]}}]}`)
		u.write("home/.config/jackfield/config.yaml", strings.Replace(u.read("home/.config/jackfield/config.yaml"), `cdi: ["vendor`, `cdi: ["vendor.example.com/dev=made", "vendor.example.com/dev=another", "vendor`, 1))
		try := func(dir, device string) (string, error) {
			return onTerminal(t, u.podman(runtime, dir, "run", append([]string{"--rm", "--network", "none"}, u.requestOptions("echo started", device)...)...), userID)
		}
		early, late := u.hooks("hooks", "precreate"), u.hooks("late", "createRuntime")
		out, err := try(early, "secret")
		checkRefused(t, out, err, `deny CDI device "vendor.example.com/dev=secret"`, "add to allow.cdi of rule", u.home)
		// The same if the terminal or pipe belongs to another user.
		piped, err := u.runPodman(runtime, early, u.requestOptions("echo started", "secret")...)
		checkRefused(t, piped, err, `deny CDI device "vendor.example.com/dev=secret"`)
		out, err = try(early, "made")
		checkRefused(t, out, err, `device node "/dev/made"`, "a container with a user namespace can only get nodes that the host has")
		out, err = try(early, "another")
		checkRefused(t, out, err, "deviceNodes[0]", `fancy0" is c 1:5 on the host, but the file says c 1:8`)
		for device, want := range map[string]string{"secret": `deny CDI device "vendor.example.com/dev=secret"`, "env": `variable "FANCY" cannot be delivered`,
			"made": "a container with a user namespace can only get nodes that the host has"} {
			out, err = try(late, device)
			checkRefused(t, out, err, want)
			if !strings.Contains(strings.ReplaceAll(u.log(), `\`, ""), want) {
				t.Errorf("%s: not in the hook's log: %q", device, want)
			}
		}
	})
}

// A container without a request never starts the hook.
func TestRootlessWithoutRequestRunsNoHook(t *testing.T) {
	rootless(t, func(t *testing.T, u *user, runtime string) {
		u.write("home/.config/jackfield/config.yaml", "what would stop the hook: here\n")
		out, err := u.runPodman(runtime, u.hooks("hooks", "precreate"), u.requestOptions("ls /dev/fancy || echo none")...)
		u.checkPrinted(out, err, "none")
		if log := u.log(); log != "" {
			t.Errorf("the hook ran: %s", log)
		}
	})
}

// A container has a user namespace inside of Podman's, in which the user has the same uid as outside.
func TestRootlessKeepIDGetsAll(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			rootless(t, func(t *testing.T, u *user, runtime string) {
				// crun 1.8.1 cannot mount a directory there without the option rbind, neither with Podman's
				// option nor with a CDI file.
				u.write("cdi/vendor.json", strings.Replace(u.read("cdi/vendor.json"), `["ro","bind"]`, `["ro","rbind"]`, 1))
				dir := u.hooks("hooks", stages...)
				ask := u.requestOptions("id -u; sockclient connect /var/run/jackfield/net/net1/vhost.sock; "+readDevice, "zero")
				out, err := u.podman(runtime, dir, "create", append([]string{"--network", "none", "--userns", "keep-id", "--annotation", "networks.jackfield.dev=net1"}, ask...)...).CombinedOutput()
				u.checkPrinted(string(out), err)
				id := strings.TrimSpace(string(out))
				u.socket(id)
				if err := os.Chmod(u.path("sock/port0/vhost.sock"), 0o666); err != nil {
					t.Fatal(err)
				}
				out, err = u.podman(runtime, dir, "start", "--attach", id).CombinedOutput()
				u.checkPrinted(string(out), err, "1000", "00 00 00 00", "from the host", "read-only", "hello from vswitch")
				out, err = u.podman(runtime, dir, "rm", id).CombinedOutput()
				u.checkPrinted(string(out), err)
			})
		})
	}
}
