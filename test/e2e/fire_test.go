// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

var (
	firePods = flag.Int("fire.pods", 200, "pods of TestPodsUnderFire")
	fireKill = flag.Duration("fire.kill", 2*time.Second, "how often TestPodsUnderFire kills the plugin")
)

// Pods come and go, twenty at a time, while the plugin is killed and started again.
// A container either has working sockets, or was created while there was no plugin:
// these runtimes know no required plugin, and then it has nothing at all. Afterwards
// nothing is left.
func TestPodsUnderFire(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		for port := range 4 {
			h.Vswitch(vswitch.VhostUser, fmt.Sprintf("/run/vsw/port%d/vhost.sock", port), "vhost-user")
			h.Vswitch(vswitch.Memif, fmt.Sprintf("/run/vsw/memif%d/memif.sock", port), "memif")
		}
		h.MkdirAll(devinfoDir)
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		// The plugin itself is another process by the end.
		before := h.Look(looked...)

		// containerd 2.1 hangs when a pod is removed while a plugin registers.
		var registering sync.RWMutex
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var kills int
		over := make(chan struct{})
		fired := make(chan error, 1)
		go func() {
			fired <- func() error {
				for {
					select {
					case <-over:
						return nil
					case <-time.After(*fireKill):
					}
					p.Kill()
					kills++
					time.Sleep(100 * time.Millisecond)
					registering.Lock()
					err := p.Plugin.Start(ctx)
					registering.Unlock()
					if err != nil {
						return err
					}
				}
			}()
		}()

		var with, without atomic.Int64
		var errs []error
		var mu sync.Mutex
		var wg sync.WaitGroup
		turn := make(chan struct{}, 20)
		for i := range *firePods {
			wg.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				got, err := fireOne(ctx, h, i, &registering)
				switch {
				case err != nil:
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				case got:
					with.Add(1)
				default:
					without.Add(1)
				}
			})
		}
		wg.Wait()
		close(over)
		if err := <-fired; err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d pods, the plugin killed %d times: %d with working sockets, %d created while there was no plugin",
			h.Generation(), *firePods, kills, with.Load(), without.Load())
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if kills == 0 || with.Load() == 0 {
			t.Errorf("%d kills and %d pods with sockets show nothing", kills, with.Load())
		}
		for _, seen := range h.Look(looked...) {
			if strings.HasPrefix(seen, fmt.Sprintf("process %d ", p.PID())) {
				before = append(before, seen) // another process than at first
			}
		}
		h.NothingLeft(before, looked...)
	})
}

// fireOne runs a pod and says whether its container has what it was granted, which
// then has to work.
func fireOne(ctx context.Context, h *e2e.H, i int, registering *sync.RWMutex) (got bool, err error) {
	name := fmt.Sprintf("pod-%d", i)
	pod, err := h.Node.RunPod(ctx, node.PodOptions{Name: name, Namespace: "dpdk-1"})
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	files := map[string]string{
		"net1": vhostUser("client", fmt.Sprintf("/run/vsw/port%d/vhost.sock", i%4)),
		"net2": memif("slave", fmt.Sprintf("/run/vsw/memif%d/memif.sock", i%4)),
		"net3": vhostUser("server", fmt.Sprintf("/run/vsw/%s/app.sock", name)),
	}
	defer func() {
		registering.RLock()
		defer registering.RUnlock()
		err = errors.Join(err, pod.Remove(context.WithoutCancel(ctx)))
		for iface := range files {
			err = errors.Join(err, os.Remove(fireFile(pod, iface)))
		}
	}()
	for iface, info := range files {
		// As Multus writes it: in place before the first container.
		if err := os.WriteFile(fireFile(pod, iface), []byte(info), 0o644); err != nil {
			return false, err
		}
	}
	ctr, err := pod.Create(ctx, node.ContainerOptions{})
	if err != nil {
		// The connection broke under the request: the kubelet tries again.
		if ctr, err = pod.Create(ctx, node.ContainerOptions{Attempt: 1}); err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := ctr.Start(ctx); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	spec, err := ctr.OCISpec(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	mounts := 0
	for _, m := range spec.Mounts {
		if strings.HasPrefix(m.Destination, "/var/run/jackfield") || strings.HasPrefix(m.Destination, "/run/vsw/") {
			mounts++
		}
	}
	if _, told := node.Env(spec, "JACKFIELD_NET1_SOCKET"); !told {
		if mounts > 0 {
			return false, fmt.Errorf("%s: %d mounts and no environment: half of it", name, mounts)
		}
		return false, nil
	}
	for _, net := range []string{"NET1", "NET2"} {
		out, stderr, code, err := ctr.Exec(ctx, "sh", "-c", "sockclient connect $JACKFIELD_"+net+"_SOCKET")
		if err != nil || code != 0 || !strings.HasPrefix(out, "hello from") {
			return false, fmt.Errorf("%s: %s gives %q, %s: status %d, %v", name, net, out, stderr, code, err)
		}
	}
	out, stderr, code, err := ctr.Exec(ctx, "sh", "-c", "touch $(dirname $JACKFIELD_NET3_SOCKET)/x && ls "+fmt.Sprintf("/run/vsw/%s", name))
	if err != nil || code != 0 || strings.TrimSpace(out) != "x" {
		return false, fmt.Errorf("%s: its own directory gives %q, %s: status %d, %v", name, out, stderr, code, err)
	}
	return true, nil
}

func fireFile(pod *node.Pod, iface string) string {
	return filepath.Join(devinfoDir, fmt.Sprintf("%s-net-%s_%s", pod.Namespace(), pod.ID, iface))
}
