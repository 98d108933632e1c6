// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/hangfs"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// A directory on a file system that never answers, from before the plugin starts: it
// registers all the same, whoever does not need the directory gets what they
// were granted, and whoever does gets an error before the runtime's deadline.
// The runtime drops a plugin that is late, so that being connected at the end shows
// that none was.
func TestADirectoryThatHangs(t *testing.T) {
	device := map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	for name, tc := range map[string]struct {
		dir     string
		later   bool // it hangs once the plugin runs
		device  bool // a CDI device can be had
		socket  bool // a socket can be had
		nothing bool // a container that asks for nothing is created
	}{
		"CDI directory":                      {dir: "/run/cdi", socket: true, nothing: true},
		"CDI directory, later":               {dir: "/run/cdi", later: true, socket: true, nothing: true},
		"device-info of networks, later":     {dir: "/run/k8s.cni.cncf.io/devinfo/cni", later: true, nothing: true},
		"device-info of device plugins":      {dir: "/run/k8s.cni.cncf.io/devinfo/dp", device: true, socket: true, nothing: true},
		"socket root":                        {dir: "/run/vsw/p1", device: true, nothing: true},
		"state directory's containers later": {dir: "/run/jackfield/containers", later: true, device: true, nothing: true},
		"audit file's directory":             {dir: "/run/audit", device: true, socket: true, nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			var release func()
			yaml := strings.ReplaceAll(observedYAML, "/run/audit.log", "/run/audit/log")
			n := preparedNode(t, yaml, nritest.Options{RequestTimeout: 6 * time.Second}, func(n *node) {
				n.write("/etc/cdi/vendor.json", cdiSpec)
				n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
				check(t, os.MkdirAll(n.path(tc.dir), 0o755))
				if !tc.later {
					release = hangfs.Mount(t, n.path(tc.dir))
				}
			})
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("registered after %v", took)
			}
			if tc.later {
				n.metrics(`jackfield_nri_connected 1`)
				release = hangfs.Mount(t, n.path(tc.dir))
			}
			defer release()
			try := func(what string, annotations map[string]string, info bool, want bool) {
				t.Helper()
				pod := nritest.NewPod("dpdk-1", "p", annotations)
				if info {
					n.devinfo(pod, "vhost-net", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`)
				}
				check(t, n.runtime.RunPodSandbox(context.Background(), pod))
				c, err := n.create(pod, nil)
				if (err == nil) != want {
					t.Errorf("%s: %v, want created: %v", what, err, want)
				}
				if err != nil && !strings.Contains(err.Error(), "given up before the runtime's deadline") {
					t.Errorf("%s: %v", what, err)
				}
				if c != nil {
					check(t, n.runtime.RemoveContainer(context.Background(), pod, c.Container))
				}
				check(t, n.runtime.RemovePodSandbox(context.Background(), pod))
			}
			try("nothing asked", nil, false, tc.nothing)
			try("a CDI device", device, false, tc.device)
			if tc.dir != "/run/k8s.cni.cncf.io/devinfo/cni" { // the test itself would hang there
				try("a socket", nil, true, tc.socket)
			}
			// Scrapes are answered, and the plugin has been connected all the time.
			n.metrics(`jackfield_nri_connected 1`, `jackfield_nri_connections_total 1`)
			if strings.Contains(tc.dir, "cdi") {
				n.metrics(`jackfield_cdi_up 0`)
			}
			if code, body := n.get("/healthz"); code != http.StatusOK {
				t.Errorf("health: %d %s", code, body)
			}

			// When it answers again, all is well without a restart.
			release()
			eventually(t, "a device after the directory is back", func() bool {
				pod := n.pod("dpdk-1", device)
				_, err := n.create(pod, nil)
				return err == nil
			})
		})
	}
}
