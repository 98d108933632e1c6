// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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

// doctor runs the command on the node of h and gives its findings and exit status.
func doctor(t *testing.T, h *e2e.H, args ...string) ([]diagnosis, int) {
	t.Helper()
	cmd := h.Command("jackfield", append([]string{"doctor", "-o", "json", "--containerd-config", filepath.Join(h.Dir(), "config.toml")}, args...)...)
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

// says wants a finding with a remedy where it is an error.
func says(t *testing.T, found []diagnosis, check, severity, text string) {
	t.Helper()
	for _, f := range found {
		if f.Check == check && f.Severity == severity && strings.Contains(f.Found, text) {
			if f.Severity == "error" && f.Remedy == "" {
				t.Errorf("without a remedy: %+v", f)
			}
			return
		}
	}
	t.Errorf("no %s of %s with %q in %+v", severity, check, text, found)
}

func TestDoctorOnARealRuntime(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/var/run/vsw")
		h.MkdirAll(devinfoDir)
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`)
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		config := []string{"--config", p.ConfigFile}
		h.RunPod(node.PodOptions{})

		found, code := doctor(t, h, config...)
		if code != 0 {
			t.Errorf("exit status %d on a node that is well: %+v", code, found)
		}
		for _, f := range found {
			if f.Severity == "error" {
				t.Errorf("a finding on a node that is well: %+v", f)
			}
		}
		says(t, found, "plugin", "ok", "is registered with containerd")
		says(t, found, "nri", "ok", h.NRISocket())
		says(t, found, "runtime", "ok", "has NRI on")
		says(t, found, "version", "note", "NRI v0.")
		if h.Generation() == node.V24 {
			says(t, found, "version", "note", "NRI v0.12.3 of containerd 2.4.2 has no field for:\n- failing a container when the plugin does not answer (0.12.4); jackfield-nri is a validator instead")
			says(t, found, "required", "note", "the validator of NRI is off in "+filepath.Join(h.Dir(), "config.toml"))
		} else {
			says(t, found, "required", "note", "knows no required plugins")
		}

		// Five ways to break it.
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
		found, code = doctor(t, h, config...)
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
		says(t, found, "cdi", "error", "/etc/cdi/bad.json")
		says(t, found, "sockets", "error", "mode 0777")
		says(t, found, "device-info", "error", gone)
		says(t, found, "orphans", "warning", "1 device-info file")

		// What is safe is done about it, and nothing else.
		found, code = doctor(t, h, append(config, "--fix")...)
		fixed := 0
		for _, f := range found {
			if f.Fixed {
				fixed++
			}
		}
		if code != 1 || fixed != 2 {
			t.Errorf("exit status %d, %d mended: %+v", code, fixed, found)
		}
		if _, err := os.Stat(gone); !os.IsNotExist(err) {
			t.Errorf("the orphan is there: %v", err)
		}
		if st, err := os.Stat("/var/run/vsw"); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("the socket root: %v, %v", st.Mode(), err)
		}

		if err := os.WriteFile(p.ConfigFile, []byte(nodeConfig+"bogus: 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.Eventually(func() error {
			found, code = doctor(t, h, config...)
			for _, f := range found {
				if strings.Contains(f.Found, "refuses a newer configuration") {
					return nil
				}
			}
			return errors.New("the refused configuration is not told")
		})
		says(t, found, "configuration", "error", "bogus")
		if err := os.WriteFile(p.ConfigFile, []byte(nodeConfig), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(node.Patience); err != nil {
			t.Errorf("stop the plugin: %v", err)
		}
		found, code = doctor(t, h, config...)
		if code != 1 {
			t.Errorf("exit status %d without a plugin", code)
		}
		says(t, found, "plugin", "error", "status.sock")
	})
}

func TestDoctorWithoutNRI(t *testing.T) {
	e2e.EachFresh(t, node.Options{NoNRI: true}, func(t *testing.T, h *e2e.H) {
		found, code := doctor(t, h)
		if code != 1 {
			t.Errorf("exit status %d", code)
		}
		says(t, found, "runtime", "error", "turns NRI off")
		says(t, found, "nri", "error", "there is no NRI socket "+h.NRISocket())
	})
}
