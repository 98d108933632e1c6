// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// `jackfield enable-nri` and a restart turn NRI on, in a configuration that turns it off and in one
// of 1.7 that does not mention it. The rest of the configuration stays.
func TestEnableNRITurnsOnRealContainerd(t *testing.T) {
	e2e.EachFresh(t, node.Options{NoNRI: true}, func(t *testing.T, h *e2e.H) {
		file := filepath.Join(h.Dir(), "config.toml")
		read := func() string {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		enable := func() string {
			out, err := h.Command("jackfield", "enable-nri", "--runtime", "containerd", "--config", file).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return string(out)
		}
		before := read()
		if !strings.Contains(before, "disable = true") {
			t.Fatalf("NRI is not off in\n%s", before)
		}
		if out := enable(); !regexp.MustCompile(`(?m)^- *disable = true\n\+ *disable = false$`).MatchString(out) {
			t.Errorf("enable-nri prints %s", out)
		}
		if want := strings.Replace(before, "disable = true", "disable = false", 1); read() != want {
			t.Errorf("the file is\n%s\nwant\n%s", read(), want)
		}
		if out := enable(); !strings.Contains(out, "nothing changed") {
			t.Errorf("the second run of enable-nri prints %s", out)
		}
		// containerd creates the socket at its next start, which has not happened yet.
		if _, err := os.Stat(h.NRISocket()); err == nil {
			t.Error("the NRI socket exists before the restart")
		}
		h.RestartContainerd()
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		pod := h.RunPod(node.PodOptions{Name: "enabled", Namespace: "dpdk-1", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=none"}})
		if err := pod.CreateFails(node.ContainerOptions{}); !strings.Contains(err.Error(), "vendor.com/net=none") {
			t.Errorf("the plugin did not get the request: %v", err)
		}

		// The default configuration of containerd has hundreds of lines, and NRI as in that version. The
		// other configuration does not mention NRI.
		containerd := filepath.Join(h.Kit().Containerd[h.Generation()], "containerd")
		shipped, err := exec.Command(containerd, "config", "default").Output()
		if err != nil {
			t.Fatal(err)
		}
		silent := regexp.MustCompile(`(?m)^ *\[plugins\.['"]io\.containerd\.nri\.v1\.nri['"]\]\n(?:^ *[a-z_]+ = .*\n)*`).ReplaceAllString(string(shipped), "")
		for name, text := range map[string]string{"default": string(shipped), "silent": silent, "disabled": strings.Replace(string(shipped), "disabled_plugins = []", `disabled_plugins = ["io.containerd.nri.v1.nri"]`, 1)} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			out := enable()
			for _, said := range []string{"default", "silent"} {
				if name == said && h.Generation() == node.V1 && strings.Contains(out, "nothing changed") {
					t.Errorf("%s: 1.7 has NRI off, and enable-nri prints %s", name, out)
				}
			}
			dump, err := exec.Command(containerd, "--config", file, "config", "dump").Output()
			if err != nil {
				t.Fatalf("%s: containerd cannot read the configuration: %v", name, err)
			}
			section := regexp.MustCompile(`\[plugins\.['"]io\.containerd\.nri\.v1\.nri['"]\]\n(?: *[a-z_]+ = .*\n)*`).FindString(string(dump))
			if !strings.Contains(section, "disable = false") || !regexp.MustCompile(`(?m)^disabled_plugins = \[\]`).Match(dump) {
				t.Errorf("%s: containerd reads\n%s", name, section)
			}
			if name != "disabled" && strings.Count(read(), "\n") < strings.Count(text, "\n") {
				t.Errorf("%s: lines are missing", name)
			}
		}
	})
}
