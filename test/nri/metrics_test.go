// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	nritest "github.com/jackfield/jackfield/test/nri"
)

const observedYAML = policyYAML + `
metrics: {listen: "unix:/run/metrics.sock"}
audit: {file: /run/audit.log}
`

// get asks the plugin, over its socket.
func (n *node) get(path string) (int, string) {
	n.t.Helper()
	client := http.Client{Timeout: testkit.Hangs, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", n.path("/run/metrics.sock"))
	}}}
	resp, err := client.Get("http://jackfield" + path)
	check(n.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(n.t, err)
	return resp.StatusCode, string(body)
}

// eventually waits for something that happens after an answer.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !testkit.Until(ok) {
		t.Fatalf("%s: not after %v", what, testkit.Hangs)
	}
}

func (n *node) metrics(want ...string) {
	n.t.Helper()
	var text string
	for _, w := range want {
		eventually(n.t, w, func() bool {
			_, text = n.get("/metrics")
			return strings.Contains("\n"+text, "\n"+w+"\n")
		})
	}
}

func TestBuildInfoVersionHasNoGoVersion(t *testing.T) {
	n := newNode(t, observedYAML, nritest.Options{})
	_, text := n.get("/metrics")
	if !regexp.MustCompile(`(?m)^jackfield_build_info\{commit="[^" ]*",goversion="go1[^" ]*",version="[^" ]+"\} 1$`).MatchString(text) {
		t.Errorf("jackfield_build_info: %s", text)
	}
}

func TestMetricsCountOutcomes(t *testing.T) {
	n := newNode(t, observedYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	n.write("/etc/cdi/bad.json", `{`)
	ask := map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	n.mustCreate(n.pod("dpdk-1", ask))
	n.mustCreate(n.pod("dpdk-1", nil))
	if _, err := n.create(n.pod("other", ask), nil); err == nil {
		t.Fatal("created without a grant")
	}
	if _, err := n.create(n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "{"}), nil); err == nil {
		t.Fatal("created with an annotation that cannot be read")
	}
	n.metrics(
		`jackfield_nri_connected 1`,
		`jackfield_nri_connections_total 1`,
		`jackfield_containers_total 4`,
		`jackfield_containers_untouched_total 1`,
		`jackfield_requests_total{outcome="injected",source="cdi"} 1`,
		`jackfield_requests_total{outcome="refused",source="cdi"} 1`,
		`jackfield_requests_total{outcome="failed",source="container"} 1`,
		`jackfield_refusals_total{rule="dpdk-tenants"} 1`,
		`jackfield_handler_duration_seconds_count{handler="CreateContainer"} 4`,
		`jackfield_handler_duration_seconds_count{handler="Synchronize"} 1`,
		`jackfield_config_generation 1`,
		`jackfield_config_current 1`,
		`jackfield_cdi_files 2`,
		`jackfield_cdi_files_in_error 1`,
		`jackfield_cdi_devices 2`,
		`jackfield_audit_lines_total 3`,
	)
	if code, body := n.get("/readyz"); code != http.StatusOK {
		t.Errorf("not ready: %d %s", code, body)
	}
	if code, body := n.get("/healthz"); code != http.StatusOK || !strings.Contains(body, "config: ok, generation 1") {
		t.Errorf("health: %d %s", code, body)
	}
	if code, _ := n.get("/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles are served without being asked for: %d", code)
	}
	check(t, n.runtime.Suspend())
	eventually(t, "not ready without a runtime", func() bool { code, _ := n.get("/readyz"); return code == http.StatusServiceUnavailable })
	n.metrics(`jackfield_nri_connected 0`)
	check(t, n.runtime.Resume())
	n.wait()
	n.metrics(`jackfield_nri_connected 1`, `jackfield_nri_connections_total 2`)
	st, err := os.Stat(n.path("/run/metrics.sock"))
	check(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v", st.Mode())
	}
}

// A refusal by a limit, or because of what another plugin injects, is counted by its rule and is in the
// audit file, as the refusal of a request is.
func TestRefusalsByLimitAndValidationAreCounted(t *testing.T) {
	yaml := strings.Replace(validatingYAML, "    - name: data\n", "    - name: quota\n      for: {namespaces: [\"*\"]}\n      limits: {container: {cdi: 1}}\n    - name: data\n", 1)
	n := newNode(t, yaml+`
metrics: {listen: "unix:/run/metrics.sock"}
audit: {file: /run/audit.log}
`, withValidation)
	n.write("/etc/cdi/vendor.json", cdiSpec)
	if _, err := n.create(n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a,vendor.com/net=b"}), nil); err == nil {
		t.Fatal("created beyond a limit")
	}
	check(t, os.MkdirAll(n.path("/etc"), 0o755))
	n.other("10", "other", injectedMount("/etc", "/host", "bind", "rbind"))
	if _, err := n.create(n.pod("dpdk-1", nil), nil); err == nil {
		t.Fatal("created with what another plugin injects")
	}
	n.metrics(
		`jackfield_requests_total{outcome="refused",source="container"} 2`,
		`jackfield_requests_total{outcome="failed",source="container"} 0`,
		`jackfield_requests_total{outcome="injected",source="cdi"} 0`,
		`jackfield_refusals_total{rule="quota"} 1`,
		`jackfield_refusals_total{rule="data"} 1`,
	)
	lines := n.auditLines("/run/audit.log", 2)
	if text, _ := json.Marshal(lines[0]["requests"]); strings.Count(string(text), `"outcome":"withheld"`) != 2 {
		t.Errorf("what a refused container was not given: %s", text)
	}
	for i, line := range lines {
		want := []string{"limits.container.cdi: 1", `injected by NRI plugin "10-other"`}[i]
		if e, _ := line["error"].(string); line["event"] != "refused" || line["container"] != "c" || !strings.Contains(e, want) {
			t.Errorf("line %d: %v, want a refusal with %s", i, line, want)
		}
	}
}

// auditLines are the lines of the audit file, once there are n.
func (n *node) auditLines(file string, count int) []map[string]any {
	n.t.Helper()
	var lines []map[string]any
	eventually(n.t, fmt.Sprintf("%d audit lines in %s", count, file), func() bool {
		data, err := os.ReadFile(n.path(file))
		if err != nil || strings.Count(string(data), "\n") < count {
			return false
		}
		lines = nil
		for line := range strings.Lines(string(data)) {
			var v map[string]any
			check(n.t, json.Unmarshal([]byte(line), &v))
			lines = append(lines, v)
		}
		return true
	})
	return lines
}

func TestAuditFileHasOrigins(t *testing.T) {
	n := newNode(t, observedYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	ask := map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	c := n.mustCreate(n.pod("dpdk-1", ask))
	n.mustCreate(n.pod("dpdk-1", nil)) // no line
	if _, err := n.create(n.pod("other", ask), nil); err == nil {
		t.Fatal("created without a grant")
	}
	lines := n.auditLines("/run/audit.log", 2)
	given, refused := lines[0], lines[1]
	if given["event"] != "injected" || given["containerID"] != c.Container.Id || given["namespace"] != "dpdk-1" || given["configGeneration"] != 1.0 {
		t.Errorf("first line: %v", given)
	}
	text, _ := json.Marshal(given)
	for _, want := range []string{
		`"what":"device /dev/net-a"`, `"field":"devices[0].containerEdits.deviceNodes[0]"`, `"file":"/etc/cdi/vendor.json"`, `"rule":"dpdk-tenants"`,
		`"what":"env DEV"`, `"what":"hook createRuntime /bin/true"`, `"what":"mount /opt/vendor/cdi from /run/cdi"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the line lacks %s: %s", want, text)
		}
	}
	if strings.Contains(string(text), "DEV=a") {
		t.Errorf("the line has the value of a variable: %s", text)
	}
	if e, _ := refused["error"].(string); refused["event"] != "refused" || !strings.Contains(e, "closest rule") {
		t.Errorf("second line: %v", refused)
	}

	// Rotation: the file is renamed, then SIGHUP is sent after another was put there.
	check(t, os.Rename(n.path("/run/audit.log"), n.path("/run/audit.log.1")))
	n.mustCreate(n.pod("dpdk-1", ask))
	n.auditLines("/run/audit.log", 1)
	n.plugin.Reopen()
	n.mustCreate(n.pod("dpdk-1", ask))
	n.auditLines("/run/audit.log", 2)
	n.auditLines("/run/audit.log.1", 2)
}

// An audit file that cannot be written delays no container: a FIFO that nobody reads, a directory, a
// full disk.
func TestBlockedAuditFileDelaysNoContainer(t *testing.T) {
	for name, put := range map[string]func(t *testing.T, file string){
		"fifo":      func(t *testing.T, file string) { check(t, unix.Mkfifo(file, 0o600)) },
		"directory": func(t *testing.T, file string) { check(t, os.Mkdir(file, 0o700)) },
		"symlink":   func(t *testing.T, file string) { check(t, os.Symlink("/etc/passwd", file)) },
		"full disk": func(t *testing.T, file string) {
			dir := filepath.Dir(file)
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4096"); err != nil {
				skip(t, "mount a small tmpfs: %v", err)
			}
			t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
			check(t, os.WriteFile(filepath.Join(dir, "full"), make([]byte, 4096), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, strings.ReplaceAll(observedYAML, "/run/audit.log", "/run/audit/log"), nritest.Options{})
			check(t, os.Mkdir(n.path("/run/audit"), 0o700))
			put(t, n.path("/run/audit/log"))
			n.write("/etc/cdi/vendor.json", cdiSpec)
			pod := n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
			for range 20 {
				n.mustCreate(pod)
			}
			n.metrics(`jackfield_audit_failures_total 20`, `jackfield_audit_up 0`)
			if _, body := n.get("/healthz"); !strings.Contains(body, "audit: /run/audit/log cannot be written") {
				t.Errorf("health does not tell: %s", body)
			}
			if strings.Count(n.log.String(), "the audit file cannot be written") != 1 {
				t.Errorf("said more than once:\n%s", n.log.String())
			}
		})
	}
}

// skip ends a test because the environment lacks something that CI has promised.
func skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// An address that another process uses does not delay the plugin, which listens there as soon as the
// address is free.
func TestAddressInUseIsRetried(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	address := l.Addr().String()
	n := newNode(t, policyYAML+"metrics: {listen: \""+address+"\"}\n", nritest.Options{})
	n.mustCreate(n.pod("dpdk-1", nil))
	check(t, l.Close())
	eventually(t, "served at "+address, func() bool {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}
