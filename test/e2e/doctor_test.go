// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

type diagnosis struct {
	Check, Severity, Found, Remedy string
	Fixed                          bool
}

// runDoctor runs the command on the node of h, and returns its findings and its exit status.
func runDoctor(t *testing.T, h *e2e.H, args ...string) ([]diagnosis, int) {
	t.Helper()
	cmd := h.Command("jackfield", append([]string{"doctor", "-o", "json", "--" + runtimeName(h) + "-config", h.ConfigFile()},
		args...)...)
	out, err := cmd.Output()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	var found []diagnosis
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return found, code
}

// expectFinding fails the test without a finding of the check, severity and text. An error needs a remedy.
func expectFinding(t *testing.T, found []diagnosis, check, severity, text string) {
	t.Helper()
	for _, f := range found {
		if f.Check == check && f.Severity == severity && strings.Contains(f.Found, text) {
			if f.Severity == "error" && f.Remedy == "" {
				t.Errorf("without a remedy: %+v", f)
			}
			return
		}
	}
	t.Errorf("no finding of severity %s and check %s with %q in %+v", severity, check, text, found)
}

// runtimeName returns the name that the runtime has in flags.
func runtimeName(h *e2e.H) string {
	if h.Generation().IsCRIO() {
		return "crio"
	}
	return "containerd"
}

func TestDoctorOnRealRuntime(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/var/run/vsw")
		h.MkdirAll(devinfoDir)
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`)
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		config := []string{"--config", p.ConfigFile}
		h.RunPod(node.PodOptions{})

		found, code := runDoctor(t, h, config...)
		if code != 0 {
			t.Errorf("exit status %d on a healthy node: %+v", code, found)
		}
		for _, f := range found {
			if f.Severity == "error" {
				t.Errorf("a finding on a healthy node: %+v", f)
			}
		}
		expectFinding(t, found, "plugin", "ok", "is registered with c") // containerd or cri-o
		expectFinding(t, found, "nri", "ok", h.NRISocket())
		expectFinding(t, found, "runtime", "ok", "has NRI on")
		expectFinding(t, found, "version", "note", "NRI v0.")
		if h.Generation() == node.V24 {
			expectFinding(t, found, "version", "note", "NRI v0.12.3 of containerd 2.4.2 has no field for:\n- failing a container when the plugin does not answer (0.12.4); jackfield-nri is a validator instead")
			expectFinding(t, found, "required", "note", "NRI's validator is off in "+h.ConfigFile())
		} else if h.Generation().IsCRIO() {
			expectFinding(t, found, "required", "note", "NRI's validator is off in "+h.ConfigFile())
		} else {
			expectFinding(t, found, "required", "note", "has no required plugins")
		}

		// Five faults.
		h.WriteFile("/etc/cdi/bad.json", `{`)
		if err := os.Chmod("/var/run/vsw", 0o777); err != nil {
			t.Fatal(err)
		}
		gone := devinfoDir + "ns-nad-" + strings.Repeat("a", 64) + "_net1"
		h.WriteFile(gone, vhostUser("client", "relative/path"))
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(gone, old, old); err != nil {
			t.Fatal(err)
		}
		found, code = runDoctor(t, h, config...)
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
		expectFinding(t, found, "cdi", "error", "/etc/cdi/bad.json")
		expectFinding(t, found, "sockets", "error", "mode 0777")
		expectFinding(t, found, "device-info", "error", gone)
		expectFinding(t, found, "orphans", "warning", "1 device-info file")

		// --fix corrects what is safe to correct, and nothing else.
		found, code = runDoctor(t, h, append(config, "--fix")...)
		fixed := 0
		for _, f := range found {
			if f.Fixed {
				fixed++
			}
		}
		if code != 1 || fixed != 2 {
			t.Errorf("exit status %d, %d fixed: %+v", code, fixed, found)
		}
		if _, err := os.Stat(gone); !os.IsNotExist(err) {
			t.Errorf("the orphan still exists: %v", err)
		}
		if st, err := os.Stat("/var/run/vsw"); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("the socket root: %v, %v", st.Mode(), err)
		}

		if err := os.WriteFile(p.ConfigFile, []byte(nodeConfig+"bogus: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.Eventually(func() error {
			found, code = runDoctor(t, h, config...)
			for _, f := range found {
				if strings.Contains(f.Found, "rejects a newer configuration") {
					return nil
				}
			}
			return errors.New("the refused configuration is not reported")
		})
		expectFinding(t, found, "configuration", "error", "bogus")
		if err := os.WriteFile(p.ConfigFile, []byte(nodeConfig), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(node.Patience); err != nil {
			t.Errorf("stop the plugin: %v", err)
		}
		found, code = runDoctor(t, h, config...)
		if code != 1 {
			t.Errorf("exit status %d without a plugin", code)
		}
		expectFinding(t, found, "plugin", "error", "status.sock")
	})
}

func TestDoctorWithoutNRI(t *testing.T) {
	e2e.EachFresh(t, node.Options{NoNRI: true}, func(t *testing.T, h *e2e.H) {
		found, code := runDoctor(t, h)
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
		expectFinding(t, found, "runtime", "error", "turns NRI off")
		expectFinding(t, found, "nri", "error", "there is no NRI socket "+h.NRISocket())
	})
}
