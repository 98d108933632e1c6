// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// editByHand applies the changes by hand in the output of `jackfield enable-nri` to files below root, and reports
// whether there are any.
func editByHand(t *testing.T, root, out string) bool {
	t.Helper()
	edits := regexp.MustCompile(`(?m)^(/[^:\n]+\.toml):(?:(\d+):)? (.*)$`).FindAllStringSubmatch(out, -1)
	// From the last line, because some edits add one.
	slices.SortStableFunc(edits, func(a, b []string) int {
		lineA, _ := strconv.Atoi(a[2])
		lineB, _ := strconv.Atoi(b[2])
		return lineB - lineA
	})
	for _, edit := range edits {
		file := filepath.Join(root, edit[1])
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		lines := strings.SplitAfter(text, "\n")
		number, _ := strconv.Atoi(edit[2])
		set := regexp.MustCompile(`^set (disable|disable_connections) = false in place of true$`).FindStringSubmatch(edit[3])
		switch {
		case edit[3] == "add these lines:":
			_, added, _ := strings.Cut(out, edit[3]+"\n\n")
			added, _, _ = strings.Cut(added, "\n\n")
			text += "\n" + added + "\n"
		case strings.HasPrefix(edit[3], "remove io.containerd.nri.v1.nri from disabled_plugins"):
			head, list := strings.Join(lines[:number-1], ""), strings.Join(lines[number-1:], "")
			at := regexp.MustCompile(`["']io\.containerd\.nri\.v1\.nri["'],?`).FindStringIndex(list)
			text = head + list[:at[0]] + list[at[1]:]
		case strings.HasPrefix(edit[3], "set disable = false in [plugins."):
			lines[number-1] += "disable = false\n"
			text = strings.Join(lines, "")
		case set != nil:
			was := lines[number-1]
			lines[number-1] = regexp.MustCompile(`\b`+set[1]+` = true`).ReplaceAllString(was, set[1]+" = false")
			if lines[number-1] == was {
				t.Errorf("%s:%d is %q, and enable-nri prints %s", edit[1], number, was, out)
			}
			text = strings.Join(lines, "")
		default:
			t.Errorf("enable-nri prints %q", edit[3])
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return len(edits) > 0
}

// `jackfield enable-nri` and a restart turn NRI on, in a configuration that turns it off and in one of 1.7 that does
// not mention it: with a drop-in where the configuration imports a directory, and otherwise with the lines that it
// prints.
func TestEnableNRITurnsOnRealContainerd(t *testing.T) {
	e2e.EachFreshContainerd(t, node.Options{NoNRI: true}, func(t *testing.T, h *e2e.H) {
		file := h.ConfigFile()
		read := func(file string) string {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		write := func(file, text string) {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		enable := func(want int, args ...string) string {
			cmd := h.Command("jackfield", append([]string{"enable-nri", "--runtime", "containerd"}, args...)...)
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Fatalf("exit status %d, want %d: %s", got, want, out)
			}
			return string(out)
		}
		before := read(file)
		if !strings.Contains(before, "disable = true") {
			t.Fatalf("NRI is not off in\n%s", before)
		}
		out := enable(1, "--runtime-config", file)
		if read(file) != before {
			t.Errorf("enable-nri changed the file to\n%s", read(file))
		}
		if !editByHand(t, "", out) {
			t.Errorf("enable-nri prints %s", out)
		}
		if want := strings.Replace(before, "disable = true", "disable = false", 1); read(file) != want {
			t.Errorf("the file is\n%s\nwant\n%s", read(file), want)
		}
		if out := enable(0, "--runtime-config", file); !strings.Contains(out, "nothing to do") {
			t.Errorf("the second run of enable-nri prints %s", out)
		}
		// containerd creates the socket at its next start, which has not happened yet.
		if _, err := os.Stat(h.NRISocket()); err == nil {
			t.Error("the NRI socket exists before the restart")
		}
		h.RestartRuntime()
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
		imports := regexp.MustCompile(`(?m)^imports = .*$`)
		if !imports.MatchString(silent) {
			t.Fatalf("%s has no imports in its default configuration", containerd)
		}
		for name, text := range map[string]string{
			"default":  string(shipped),
			"silent":   imports.ReplaceAllString(silent, "imports = []"),
			"imports":  imports.ReplaceAllString(silent, "imports = ['conf.d/*.toml']"),
			"disabled": strings.Replace(string(shipped), "disabled_plugins = []", `disabled_plugins = ["io.containerd.nri.v1.nri"]`, 1),
		} {
			root := t.TempDir()
			file := filepath.Join(root, "etc/containerd/config.toml")
			write(file, text)
			off := h.Generation() == node.V1 || name == "disabled"
			want := 0
			if off && name != "imports" {
				want = 1
			}
			out := enable(want, "--root", root)
			if read(file) != text {
				t.Errorf("%s: enable-nri changed the file", name)
			}
			dropIn := filepath.Join(root, "etc/containerd/conf.d/99-jackfield-nri.toml")
			if _, err := os.Stat(dropIn); (err == nil) != (off && name == "imports") {
				t.Errorf("%s: the drop-in: %v; enable-nri prints %s", name, err, out)
			}
			if want == 1 && !editByHand(t, root, out) {
				t.Errorf("%s: NRI is off, and enable-nri prints %s", name, out)
			}
			dump, err := exec.Command(containerd, "--config", file, "config", "dump").Output()
			if err != nil {
				t.Fatalf("%s: containerd cannot read the configuration: %v", name, err)
			}
			section := regexp.MustCompile(`\[plugins\.['"]io\.containerd\.nri\.v1\.nri['"]\]\n(?: *[a-z_]+ = .*\n)*`).FindString(string(dump))
			if !strings.Contains(section, "disable = false") || !regexp.MustCompile(`(?m)^disabled_plugins = \[\]`).Match(dump) {
				t.Errorf("%s: containerd reads\n%s", name, section)
			}
		}
	})
}
