// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"

	nritest "github.com/jackfield/jackfield/test/nri"
)

// BenchmarkDaemonIdle measures the resident memory of an idle jackfield-nri with 1,000 CDI files,
// metrics, audit file and status enabled, and of a plugin that does nothing. Each round starts new processes at a real
// NRI socket, and scrapes the metrics once before the measurement.
func BenchmarkDaemonIdle(b *testing.B) {
	n := newNRI(b)
	for _, d := range []string{"cdi", "vsw", "cni", "dp", "state"} {
		testkit.Must(b, os.MkdirAll(filepath.Join(n.dir, d), 0o755))
	}
	for i := range 1000 {
		testkit.Must(b, os.WriteFile(filepath.Join(n.dir, fmt.Sprintf("cdi/d%d.json", i)), fmt.Appendf(nil,
			`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"d%d","containerEdits":{"env":["D%d=1"],"deviceNodes":[{"path":"/dev/d%d","type":"c","major":1,"minor":3}]}}]}`, i, i, i), 0o644))
	}
	file := filepath.Join(n.dir, "config.yaml")
	testkit.Must(b, os.WriteFile(file, []byte(strings.ReplaceAll(`
cdi: {specDirs: [DIR/cdi]}
sockets: {roots: [DIR/vsw]}
deviceInfo: {cniDir: DIR/cni, dpDir: DIR/dp}
stateDir: DIR/state
metrics: {listen: "unix:DIR/metrics.sock"}
audit: {file: DIR/audit.log}
`, "DIR", n.dir)), 0o600))
	bin, noop := build(b, "../cmd/jackfield-nri"), build(b, "./nri/cmd/noop")
	metrics := filepath.Join(n.dir, "metrics.sock")
	var kib, noopKiB float64
	rounds := 0
	for b.Loop() {
		rounds++
		runtime := nritest.New(b, nritest.Options{})
		kib += measureIdle(b, runtime, "50-jackfield", func() { scrape(b, metrics) },
			bin, "--config", file, "--nri-socket", runtime.SocketPath())
		runtime = nritest.New(b, nritest.Options{})
		noopKiB += measureIdle(b, runtime, "50-noop", func() {}, noop, runtime.SocketPath(), "50", "noop")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(kib/float64(rounds)/1024, "MiB-resident")
	b.ReportMetric(noopKiB/float64(rounds)/1024, "noop-MiB-resident")
}

// measureIdle starts a plugin, calls use once it is registered, and returns its resident memory three seconds later, in
// KiB.
func measureIdle(b *testing.B, runtime *nritest.Runtime, name string, use func(), args ...string) (kib float64) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = io.Discard
	_, err := cmd.StdinPipe() // the plugin that does nothing ends with its standard input
	testkit.Must(b, err)
	testkit.Must(b, cmd.Start())
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	wait, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	testkit.Must(b, runtime.WaitPlugin(wait, name))
	use()
	time.Sleep(3 * time.Second)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	testkit.Must(b, err)
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err = strconv.ParseFloat(strings.Fields(v)[0], 64)
			testkit.Must(b, err)
		}
	}
	return kib
}

// scrape reads the metrics of a jackfield-nri.
func scrape(b *testing.B, socket string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Get("http://jackfield/metrics")
	testkit.Must(b, err)
	out, err := io.ReadAll(resp.Body)
	testkit.Must(b, err)
	testkit.Must(b, resp.Body.Close())
	if !bytes.Contains(out, []byte("jackfield_cdi_files 1000\n")) {
		b.Fatalf("want 1000 CDI files, have: %s", out)
	}
}
