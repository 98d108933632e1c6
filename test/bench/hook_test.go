// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// BenchmarkHookProcess is jackfield-hook at precreate, the whole process from fork
// to exit, with CDI files there, in turn with a Go program that prints a line:
// for a container that asks for nothing, should a runtime run the hook for it at
// all, and for one that asks for one device.
func BenchmarkHookProcess(b *testing.B) {
	hook, hello := build(b, "../cmd/jackfield-hook"), build(b, "./bench/testdata/hello")
	config := filepath.Join(b.TempDir(), "config.yaml")
	configure := func(dir string) {
		check(b, os.WriteFile(config, []byte(strings.NewReplacer("SPECS", dir, "STATE", filepath.Join(filepath.Dir(config), "state"), "KIND", cdiKind).Replace(`
cdi: {specDirs: [SPECS]}
stateDir: STATE
policy:
  rules:
    - name: r
      for: {namespaces: [""]}
      allow: {cdi: ["KIND=*"]}
`)), 0o600))
	}
	spec := func(annotations map[string]string) []byte {
		s := podSpec()
		s.Root, s.Annotations = &rspec.Root{Path: "/rootfs"}, annotations
		text, err := json.Marshal(s)
		check(b, err)
		return text
	}
	run := func(stdin []byte, want string, args ...string) time.Duration {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = []string{}
		cmd.Stdin = bytes.NewReader(stdin)
		var out, msg bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &msg
		start := time.Now()
		err := cmd.Run()
		took := time.Since(start)
		if err != nil || !strings.Contains(out.String(), want) {
			b.Fatalf("%v: %v: %s", args, err, msg.String())
		}
		return took
	}
	for _, tt := range []struct {
		name        string
		files       int
		annotations map[string]string
		want        string
	}{
		{"nothing-asked", 1000, nil, "sleep"},
		{"one-device/n=1", 1, map[string]string{"devices.jackfield.dev": cdiQualified(0, 0)}, "/dev/vendor0"},
		{"one-device/n=10", 10, map[string]string{"devices.jackfield.dev": cdiQualified(9, 0)}, "/dev/vendor0"},
		{"one-device/n=1000", 1000, map[string]string{"devices.jackfield.dev": cdiQualified(999, 0)}, "/dev/vendor0"},
	} {
		configure(cdiDirectory(b, tt.files))
		stdin := spec(tt.annotations)
		b.Run(tt.name, func(b *testing.B) {
			var ours, peer []time.Duration
			for b.Loop() {
				ours = append(ours, run(stdin, tt.want, hook, "--config", config, "precreate"))
				peer = append(peer, run(nil, "hello", hello))
			}
			reportPair(b, ours, peer, "jackfield-ms", "hello-ms", time.Millisecond)
		})
	}
}
