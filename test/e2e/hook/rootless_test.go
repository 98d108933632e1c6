// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rootless runs a test for an ordinary user with each runtime.
func rootless(t *testing.T, f func(t *testing.T, u *user, runtime string)) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			u := newHost(t).user()
			u.configureUser(false)
			f(t, u, name)
		})
	}
}

// hookRan has a place where the CDI device's own hook, which is run as the user, can
// write.
func (u *user) hookRan() {
	u.write("hook-ran", "")
	u.own(u.path("hook-ran"))
}

// At precreate an ordinary user's container gets everything: variable, mount, hook, and
// the host's own device node. Its owner and mode say whether it can be used, and no
// node can be made.
func TestRootlessPrecreate(t *testing.T) {
	rootless(t, func(t *testing.T, u *user, runtime string) {
		u.hookRan()
		dir := u.hooks("hooks", "precreate")
		out, err := u.runs(runtime, dir, u.asks("echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1; cat /proc/self/uid_map", "full")...)
		u.wants(out, err, "FANCY=1", "00 00 00 00", "100000")
		if state, err := os.ReadFile(u.path("hook-ran")); err != nil || !strings.Contains(string(state), `"ociVersion"`) {
			t.Errorf("the device's hook got %q, %v", state, err)
		}
		out, err = u.runs(runtime, dir, u.asks(readDevice, "zero")...)
		u.wants(out, err, "00 00 00 00", "from the host", "read-only")
		u.modes(t, runtime, dir)
	})
}

// The stages that every runtime has, alone.
func TestRootlessCreateRuntime(t *testing.T) {
	for _, stage := range []string{"createRuntime", "prestart"} {
		t.Run(stage, func(t *testing.T) {
			rootless(t, func(t *testing.T, u *user, runtime string) {
				dir := u.hooks("hooks", stage, "poststop")
				out, err := u.runs(runtime, dir, append([]string{"--read-only"}, u.asks(readDevice+"; touch /x || echo root is read-only", "zero")...)...)
				u.wants(out, err, "00 00 00 00", "from the host", "read-only", "root is read-only")
				u.modes(t, runtime, dir)
			})
		})
	}
}

// modes shows whose device nodes an ordinary user's container can use: those that the
// user can.
func (u *user) modes(t *testing.T, runtime, dir string) {
	t.Helper()
	const open = "(: </dev/ctl) && echo opened; mknod /dev/other c 10 237; [ -c /dev/other ] || echo none other"
	out, err := u.runs(runtime, dir, u.asks(open, "ctl")...)
	u.wants(out, err, "opened", "none other", "Operation not permitted")
	if err := os.Chmod(u.path("ctl0"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = u.runs(runtime, dir, u.asks(open, "ctl")...)
	u.wants(out, err, "can't open /dev/ctl: Permission denied", "none other")
}

// A network's socket, twice, with the user's own configuration or the system's: what is
// kept for the container is below /run/user. A socket that is not for everybody is
// none for the user.
func TestRootlessSocket(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			for _, runtime := range []string{"runc", "crun"} {
				t.Run(runtime, func(t *testing.T) {
					u := newHost(t).user()
					u.configureUser(stages[0] == "precreate")
					dir := u.hooks("hooks", stages...)
					ask := u.asks("sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /var/run/jackfield/devices.json")
					out, err := u.podman(runtime, dir, "create", append([]string{"--network", "none", "--annotation", "networks.jackfield.dev=net1"}, ask...)...).CombinedOutput()
					u.wants(string(out), err)
					id := strings.TrimSpace(string(out))
					u.socket(id)
					start := func() string {
						out, err := u.podman(runtime, dir, "start", "--attach", id).CombinedOutput()
						u.wants(string(out), err, `"/var/run/jackfield/net/net1/vhost.sock"`)
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
					u.wants(string(out), err)
					if _, err := os.Stat(filepath.Join(u.run, "jackfield/hook/staging.json")); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// What the policy refuses, and what no user namespace can have, stops the container, and
// the user reads why in the terminal.
func TestRootlessRefused(t *testing.T) {
	rootless(t, func(t *testing.T, u *user, runtime string) {
		u.write("cdi/made.json", `{"cdiVersion":"0.6.0","kind":"vendor.example.com/dev","devices":[
			{"name":"made","containerEdits":{"deviceNodes":[{"path":"/dev/made","type":"c","major":1,"minor":5}]}},
			{"name":"another","containerEdits":{"deviceNodes":[{"path":"/dev/fancy","hostPath":"`+u.path("fancy0")+`","type":"c","major":1,"minor":8}]}}]}`)
		u.write("home/.config/jackfield/config.yaml", strings.Replace(u.read("home/.config/jackfield/config.yaml"), `cdi: ["vendor`, `cdi: ["vendor.example.com/dev=made", "vendor.example.com/dev=another", "vendor`, 1))
		try := func(dir, device string) (string, error) {
			return onTerminal(t, u.podman(runtime, dir, "run", append([]string{"--rm", "--network", "none"}, u.asks("echo started", device)...)...), userID)
		}
		early, late := u.hooks("hooks", "precreate"), u.hooks("late", "createRuntime")
		out, err := try(early, "secret")
		refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`, "add to allow.cdi of rule", u.home)
		// The same where the terminal, or a pipe in its place, is another user's.
		piped, err := u.runs(runtime, early, u.asks("echo started", "secret")...)
		refused(t, piped, err, `refuse CDI device "vendor.example.com/dev=secret"`)
		out, err = try(early, "made")
		refused(t, out, err, `device node "/dev/made"`, "in a user namespace only a node of the host can be had")
		out, err = try(early, "another")
		refused(t, out, err, `device node "/dev/fancy"`, "number 1:5", "1:8")
		for device, want := range map[string]string{"secret": `refuse CDI device "vendor.example.com/dev=secret"`, "env": `variable "FANCY" comes too late`,
			"made": "in a user namespace only a node of the host can be had"} {
			out, err = try(late, device)
			refused(t, out, err, want)
			if !strings.Contains(strings.ReplaceAll(u.log(), `\`, ""), want) {
				t.Errorf("%s: not in the hook's log: %q", device, want)
			}
		}
	})
}

// A container that asks for nothing never starts the hook.
func TestRootlessNothing(t *testing.T) {
	rootless(t, func(t *testing.T, u *user, runtime string) {
		u.write("home/.config/jackfield/config.yaml", "what would stop the hook: here\n")
		out, err := u.runs(runtime, u.hooks("hooks", "precreate"), u.asks("ls /dev/fancy || echo none")...)
		u.wants(out, err, "none")
		if log := u.log(); log != "" {
			t.Errorf("the hook ran: %s", log)
		}
	})
}

// A container with a user namespace inside of Podman's, in which the user has the same
// uid as outside.
func TestRootlessKeepID(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			rootless(t, func(t *testing.T, u *user, runtime string) {
				// crun 1.8.1 fails to mount a directory there that is not said to be bound with all
				// below it, with Podman's own option as with a CDI file's.
				u.write("cdi/vendor.json", strings.Replace(u.read("cdi/vendor.json"), `["ro","bind"]`, `["ro","rbind"]`, 1))
				dir := u.hooks("hooks", stages...)
				ask := u.asks("id -u; sockclient connect /var/run/jackfield/net/net1/vhost.sock; "+readDevice, "zero")
				out, err := u.podman(runtime, dir, "create", append([]string{"--network", "none", "--userns", "keep-id", "--annotation", "networks.jackfield.dev=net1"}, ask...)...).CombinedOutput()
				u.wants(string(out), err)
				id := strings.TrimSpace(string(out))
				u.socket(id)
				if err := os.Chmod(u.path("sock/port0/vhost.sock"), 0o666); err != nil {
					t.Fatal(err)
				}
				out, err = u.podman(runtime, dir, "start", "--attach", id).CombinedOutput()
				u.wants(string(out), err, "1000", "00 00 00 00", "from the host", "read-only", "hello from vswitch")
				out, err = u.podman(runtime, dir, "rm", id).CombinedOutput()
				u.wants(string(out), err)
			})
		})
	}
}
