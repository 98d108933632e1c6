// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// `jackfield enable-nri` and a restart turn NRI on in CRI-O: with a drop-in if the file that turns it off is read
// earlier, and otherwise with the change that the command prints.
func TestEnableNRITurnsOnRealCRIO(t *testing.T) {
	const dropIns = "/etc/crio/crio.conf.d/"
	for name, c := range map[string]struct {
		file, text string // a drop-in beside the main file, which turns NRI off
		byHand     string // the change that the command prints; "" if it writes a drop-in
	}{
		"main file":         {},
		"earlier drop-in":   {file: dropIns + "10-site.conf", text: "[crio.nri]\nenable_nri = false\n"},
		"later drop-in":     {dropIns + "zz-site.conf", "[crio.nri]\nenable_nri = false\n", "set enable_nri = true in place of false"},
		"no connections":    {dropIns + "zz-site.conf", "[crio.nri]\nnri_disable_connections = true\n", "set nri_disable_connections = false in place of true"},
		"a sub-directory":   {file: dropIns + "10-site/site.conf", text: "[crio.nri]\nenable_nri = false\n"},
		"later, in a sub-d": {dropIns + "zz-site/site.conf", "[crio.nri]\nenable_nri = false\n", "set enable_nri = true in place of false"},
	} {
		t.Run(name, func(t *testing.T) {
			h := e2e.Fresh(t, node.Options{Generation: node.CRIO, NoNRI: true, SystemConfig: true})
			if c.file != "" {
				h.WriteFile(c.file, c.text)
			}
			enable := func(args ...string) (string, int) {
				cmd := h.Command("jackfield", append([]string{"enable-nri", "--runtime", "cri-o"}, args...)...)
				out, _ := cmd.CombinedOutput()
				return string(out), cmd.ProcessState.ExitCode()
			}
			const written = dropIns + "99-jackfield-nri.conf"
			out, code := enable("--dry-run")
			if _, err := os.Stat(written); err == nil {
				t.Errorf("--dry-run wrote %s", written)
			}
			if (code == 0) != (c.byHand == "") || c.byHand == "" && !strings.Contains(out, "enable_nri = true") {
				t.Errorf("--dry-run: exit status %d: %s", code, out)
			}
			if out, code = enable(); c.byHand == "" && code != 0 || c.byHand != "" && code != 1 {
				t.Fatalf("exit status %d: %s", code, out)
			}
			if c.byHand != "" {
				if !strings.Contains(out, c.file) || !strings.Contains(out, c.byHand) {
					t.Fatalf("the command does not print %s of %s: %s", c.byHand, c.file, out)
				}
				// The main file still turns NRI off.
				text := strings.NewReplacer("enable_nri = false", "enable_nri = true", "connections = true", "connections = false").Replace(c.text)
				h.WriteFile(c.file, text)
				if out, code = enable(); code != 0 {
					t.Fatalf("after the change: exit status %d: %s", code, out)
				}
			}
			t.Cleanup(func() { os.Remove(written) })
			h.RestartRuntime()
			h.StartPlugin(node.PluginOptions{Config: nodeConfig})
			if out, code := enable(); code != 0 || !strings.Contains(out, "nothing to do") {
				t.Errorf("the second run: exit status %d: %s", code, out)
			}
		})
	}
}

// installHook installs the hook as an administrator does, with a configuration, and makes CRI-O read it.
func installHook(t *testing.T, h *e2e.H, config string) {
	t.Helper()
	h.WriteFile("/etc/jackfield/config.yaml", config)
	hook := h.Command("jackfield-hook").Path
	prefix := t.TempDir()
	script := func(target string) {
		cmd := h.Command("../../deploy/install/install.sh", target)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BIN=" + filepath.Dir(hook), "PREFIX=" + prefix,
			"CNIBINDIR=" + prefix + "/cni", "NRIPLUGINDIR=" + prefix + "/nri", "NRICONFDIR=" + prefix + "/nri.d"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("install.sh %s: %v\n%s", target, err, out)
		}
	}
	script("install")
	script("crio-hook")
	t.Cleanup(func() {
		if t.Failed() {
			if log, err := os.ReadFile("/run/jackfield/hook.log"); err == nil {
				t.Logf("the hook logged:\n%s", node.Tail(string(log), 40))
			}
		}
	})
	h.RestartRuntime()
}
