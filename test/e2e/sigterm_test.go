// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kubelet"
)

// The plugin gets SIGTERM while a container is being created, which the kubelet's answer delays. The
// container has its device or is refused with a reason, and is never created without its device. The plugin
// exits with status 0, and nothing is left.
func TestSIGTERMDuringCreation(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		createHardware(t, h)
		k, err := kubelet.StartUnder(hostRoot)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Stop)
		p := h.StartPlugin(node.PluginOptions{Config: deviceConfig + "metrics: {listen: \"unix:/run/sigterm.sock\"}\n", Args: []string{"--root", hostRoot}})
		type testCase struct {
			name  string
			delay time.Duration
			gets  bool
		}
		cases := []testCase{{"answered", 300 * time.Millisecond, true}, {"unanswered", time.Minute, false}}
		for i := 0; i < len(cases); i++ {
			tc := cases[i]
			if i > 0 {
				p.Restart()
			}
			pod := h.RunPod(node.PodOptions{Name: tc.name, Namespace: "dpdk-1"})
			k.SetPods(kubelet.Pod("dpdk-1", tc.name, kubelet.Container("main", kubelet.Device(resource, vf1))))
			hostDevinfo(h, pod, "red", "net1", pci(vf1))
			k.SetDelay(tc.delay)
			type result struct {
				c   *node.Container
				err error
			}
			made := make(chan result, 1)
			go func() {
				c, err := pod.Pod.Create(context.WithoutCancel(t.Context()), node.ContainerOptions{Env: []string{"PCIDEVICE_ACME_COM_VF=" + vf1}})
				made <- result{c, err}
			}()
			// The plugin may have called the kubelet earlier. The test waits for the call of the request.
			h.Eventually(func() error {
				metrics, err := getMetrics(hostRoot+"/run/sigterm.sock", "/metrics")
				if err == nil && number(metrics, "jackfield_containers_total ") < 1 {
					err = errors.New("the plugin is not asked for a container")
				}
				return err
			})
			p.Signal(syscall.SIGTERM)
			r := <-made
			ctx, cancel := context.WithTimeout(t.Context(), node.Patience)
			err := p.Wait(ctx)
			cancel()
			if err != nil {
				t.Errorf("%s: the daemon ended with %v", tc.name, err)
			}
			k.SetDelay(0)
			switch {
			case tc.gets && e2e.TooLate(r.err) && i < 20:
				// On a busy machine the kubelet's answer may take longer than the half second that the plugin
				// waits. The plugin then refuses with a reason, and another attempt may succeed.
				cases = slices.Insert(cases, i+1, testCase{fmt.Sprintf("answered-%d", i+1), tc.delay, true})
			case tc.gets && r.err != nil:
				t.Errorf("%s: %v", tc.name, r.err)
			case !tc.gets && (r.err == nil || !strings.Contains(r.err.Error(), "jackfield: container") || !strings.Contains(r.err.Error(), "kubelet")):
				t.Errorf("%s: created without its device, or refused without a reason: %v", tc.name, r.err)
			case tc.gets:
				if err := r.c.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				out, _, _, err := r.c.Exec(t.Context(), "sh", "-c", "ls /dev/vfio; cat $JACKFIELD_DEVICES_FILE")
				if err != nil || !strings.HasPrefix(out, "11\nvfio\n") || !strings.Contains(out, vf1) {
					t.Errorf("%s: the container has %q, %v", tc.name, out, err)
				}
				// The next process takes over the container and cleans up after it.
				p.Restart()
				pod.Remove()
				if err := p.Stop(node.Patience); err != nil {
					t.Error(err)
				}
			}
			for _, dir := range []string{"containers", "sandboxes", "claims"} {
				left, err := os.ReadDir(filepath.Join(hostRoot, "run/jackfield", dir))
				if err != nil || len(left) > 0 {
					t.Errorf("%s: left in the state directory: %s/%v %v", tc.name, dir, left, err)
				}
			}
		}
	})
}
