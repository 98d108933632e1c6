// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/ipam"
)

// A plugin that is its own IPAM plugin would run without end.
func TestPluginIsNotItsOwnIPAM(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"jackfield-cni", "jackfield-netavark"} {
		conf := confWith(`, "ipam": {"type": "` + name + `"}`)
		for _, command := range []string{"ADD", "STATUS"} {
			want := `invalid value "` + name + `": must be an IPAM plugin`
			if a := n.run(env(command), conf); a.code != codeConfig || !strings.Contains(a.all, want) {
				t.Errorf("%s %s: code %d, %s", command, name, a.code, a.all)
			}
		}
	}
}

// A program between the plugin and itself has another name. The plugin marks the environment of its IPAM plugin.
func TestNestedRunIsRefused(t *testing.T) {
	n := newNode(t)
	if a := n.run(env("ADD", ipam.NestedMark+"=1"), confWith("")); a.code != codeConfig || !strings.Contains(a.all, "ipam") {
		t.Errorf("ADD: code %d, %s", a.code, a.all)
	}
	n.mustRun(env("ADD"), confWith(""))
	n.mustRun(env("DEL", ipam.NestedMark+"=1"), confWith(""))
	if len(n.files()) == 0 {
		t.Error("a nested DEL removed the attachment")
	}
}

// The mark reaches every run of an IPAM plugin, also that of a wrapper which starts this plugin.
func TestIPAMPluginIsMarkedAsNested(t *testing.T) {
	n := newNode(t)
	n.write("/bin/wrapper", "#!/bin/sh\necho $CNI_COMMAND $"+ipam.NestedMark+" >> "+filepath.Join(n.dir, "runs")+"\n"+
		`[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.0.0"}'`+"\n")
	testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/wrapper"), 0o755))
	conf := confWith(`, "ipam": {"type": "wrapper"}`)
	for _, command := range []string{"ADD", "DEL"} {
		n.run(env(command, "CNI_PATH="+filepath.Join(n.dir, "bin"), "PATH=/bin:/usr/bin"), conf)
	}
	runs, err := os.ReadFile(filepath.Join(n.dir, "runs"))
	testkit.Must(t, err)
	lines := strings.Split(strings.TrimSpace(string(runs)), "\n")
	if len(lines) < 2 || slices.ContainsFunc(lines, func(line string) bool { return !strings.HasSuffix(line, " 1") }) {
		t.Errorf("the IPAM plugin ran as %q", lines)
	}
}

// Every operation but ADD ends in bounded time, whatever the IPAM plugin does. The runtime undoes an ADD by DEL.
func TestOperationsWithHungIPAMPluginEnd(t *testing.T) {
	n := newNode(t)
	n.write("/bin/hang", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exec sleep 8\n"+
		`echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.2/24"}]}'`+"\n")
	testkit.Must(t, os.Chmod(filepath.Join(n.dir, "bin/hang"), 0o755))
	conf := confWith(`, "ipam": {"type": "hang"}, "cni.dev/valid-attachments": []`)
	environ := func(command string) []string {
		return env(command, "CNI_PATH="+filepath.Join(n.dir, "bin"), "PATH=/bin:/usr/bin")
	}
	n.mustRun(environ("ADD"), conf)
	n.maxTime = 200 * time.Millisecond
	for _, command := range []string{"STATUS", "GC", "DEL"} {
		a := n.run(environ(command), conf)
		if a.code == 0 || !strings.Contains(a.all, "IPAM plugin hang timed out") {
			t.Errorf("%s: code %d, %s", command, a.code, a.all)
		}
	}
}
