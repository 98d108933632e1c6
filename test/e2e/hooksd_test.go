// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// The tests of this file use hooks.d directories through NRI: containerd does not read them itself.

const hooksConfig = `
hooks: {dirs: [/run/hd/usr, /run/hd/etc]}
policy:
  rules:
    - name: hooks
      for:   {namespaces: ["dpdk-*"]}
      allow: {hooks: ["/run/hd/bin/*"]}
`

// hookFile writes a hook file whose program appends its arguments to a file.
func hookFile(h *e2e.H, path, program, when, stages string, args ...string) {
	quoted := []string{}
	for _, a := range args {
		quoted = append(quoted, fmt.Sprintf("%q", a))
	}
	h.WriteFile(path, fmt.Sprintf(`{"version": "1.0.0", "hook": {"path": %q, "args": [%s], "env": ["PATH=/bin:/usr/bin"], "timeout": 5},
 "when": %s, "stages": [%s]}`, program, strings.Join(append([]string{`"note"`}, quoted...), ", "), when, stages))
}

func noted() string {
	data, _ := os.ReadFile("/run/hd/noted")
	return strings.Join(strings.Fields(string(data)), " ")
}

func TestHooksDirThroughNRI(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		t.Cleanup(func() { os.RemoveAll("/run/hd") })
		h.MkdirAll("/run/hd/etc")
		h.MkdirAll("/run/hd/usr")
		h.WriteFile("/run/hd/bin/note", "#!/bin/sh\ncat > /run/hd/state\necho \"$@\" >> /run/hd/noted\n")
		if err := os.Chmod("/run/hd/bin/note", 0o755); err != nil {
			t.Fatal(err)
		}
		const note = "/run/hd/bin/note"
		hookFile(h, "/run/hd/etc/10-asked.json", note, `{"annotations": {"^example\\.com/note$": "^yes$"}}`, `"createRuntime", "poststart", "poststop"`, "asked")
		hookFile(h, "/run/hd/etc/20-other.json", note, `{"annotations": {"^example\\.com/other$": ".*"}}`, `"createRuntime"`, "other")
		hookFile(h, "/run/hd/etc/30-command.json", note, `{"commands": ["/sleep$", "^sh$"], "always": true}`, `"prestart"`, "command")
		hookFile(h, "/run/hd/etc/40-binds.json", note, `{"hasBindMounts": true}`, `"createRuntime"`, "binds")
		hookFile(h, "/run/hd/usr/10-asked.json", note, `{"always": true}`, `"createRuntime"`, "masked")
		hookFile(h, "/run/hd/etc/50-gone.json", "/run/hd/bin/gone", `{"annotations": {"^example\\.com/gone$": "^yes$"}}`, `"createRuntime"`, "gone")
		h.WriteFile("/run/hd/etc/05-bad.json", "{\n \"version\": \"1.0.0\",\n \"hook\": {\"path\": 7}\n}")
		plugin := h.StartPlugin(node.PluginOptions{Config: hooksConfig})
		for _, want := range []string{
			"/run/hd/etc/05-bad.json:3:19: hook.path: found a number: must be a string",
			"/run/hd/etc/50-gone.json:1:39: hook.path: found",
		} {
			plugin.WaitLog(0, want)
		}

		run := func(name, namespace string, annotations map[string]string, o node.ContainerOptions) string {
			os.Remove("/run/hd/noted")
			pod := h.RunPod(node.PodOptions{Name: name, Namespace: namespace, Annotations: annotations})
			o.Command = []string{"/bin/sleep", "1000"}
			ctr := pod.Run(o)
			state, _ := os.ReadFile("/run/hd/state")
			if noted() != "" && !strings.Contains(string(state), ctr.ID) {
				t.Errorf("the hook got the state %q", state)
			}
			started := noted()
			pod.Remove()
			return started + " | " + strings.TrimSpace(strings.TrimPrefix(noted(), started))
		}
		yes := map[string]string{"example.com/note": "yes"}
		if got := run("asked", "dpdk-1", yes, node.ContainerOptions{}); got != "asked command asked | asked" {
			t.Errorf("hooks ran: %s", got)
		}
		if got := run("unasked", "dpdk-1", map[string]string{"example.com/note": "no"}, node.ContainerOptions{}); got != "command |" && got != "command | " {
			t.Errorf("hooks ran in a pod without a request: %s", got)
		}
		if got := run("binds", "dpdk-1", nil, node.ContainerOptions{Mounts: []*cri.Mount{{HostPath: "/run/hd/bin", ContainerPath: "/data", Readonly: true}}}); strings.Trim(got, " |") != "command binds" {
			t.Errorf("hooks ran in a pod with a bind mount: %s", got)
		}
		// With a policy that denies the hook, a container that requests it is refused. A container
		// that does not request it runs without it.
		if got := run("left", "default", nil, node.ContainerOptions{}); strings.Trim(got, " |") != "" {
			t.Errorf("hooks ran where no rule grants them: %s", got)
		}
		err := h.RunPod(node.PodOptions{Name: "refused", Namespace: "default", Annotations: yes}).CreateFails(node.ContainerOptions{})
		if !strings.Contains(err.Error(), `deny hook "/run/hd/bin/note"`) || !strings.Contains(err.Error(), "hooks: [") {
			t.Errorf("the refusal is %v", err)
		}
		err = h.RunPod(node.PodOptions{Name: "gone", Namespace: "dpdk-1", Annotations: map[string]string{"example.com/gone": "yes"}}).CreateFails(node.ContainerOptions{})
		if !strings.Contains(err.Error(), "/run/hd/etc/50-gone.json:1:39: hook.path") || !strings.Contains(err.Error(), "no such file on this host") {
			t.Errorf("a hook without a program: %v", err)
		}
		// Users who can write the program's directory can replace the program.
		if err := os.Chmod("/run/hd/bin", 0o777|os.ModeSticky); err != nil {
			t.Fatal(err)
		}
		err = h.RunPod(node.PodOptions{Name: "open", Namespace: "dpdk-1", Annotations: yes}).CreateFails(node.ContainerOptions{})
		if !strings.Contains(err.Error(), `through directory "/run/hd/bin", mode 1777`) {
			t.Errorf("a hook whose program is in an open directory: %v", err)
		}
		if err := os.Chmod("/run/hd/bin", 0o755); err != nil {
			t.Fatal(err)
		}

		// The next container sees changes. The plugin reports them without a request.
		from := len(plugin.Log())
		if err := errors.Join(os.Remove("/run/hd/etc/10-asked.json"), os.Remove("/run/hd/etc/05-bad.json")); err != nil {
			t.Fatal(err)
		}
		if got := run("masked", "dpdk-1", yes, node.ContainerOptions{}); strings.Trim(got, " |") != "masked command" {
			t.Errorf("after a file was removed hooks ran: %s", got)
		}
		if err := os.Chmod("/run/hd/etc", 0o777); err != nil {
			t.Fatal(err)
		}
		plugin.WaitLog(from, `/run/hd/etc: found directory \"/run/hd/etc\", mode 0777`) // the log escapes quotes
		if got := run("open", "dpdk-1", yes, node.ContainerOptions{}); strings.Trim(got, " |") != "masked" {
			t.Errorf("with a directory that anyone can write hooks ran: %s", got)
		}
	})
}
