// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

func claimSpec(i int) string {
	return fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"claim-%d","containerEdits":{"env":["CLAIM_%d=yes"]}}]}`, i, i)
}

// A node with DRA drivers has 2,000 specs. Each second 20 more are renamed into place, and a container
// requests each new device as soon as its spec exists. Every container gets its device.
func TestContainerGetsDeviceOfNewSpec(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/etc/cdi")
		dir, err := os.MkdirTemp("/etc/cdi", ".new")
		if err != nil {
			t.Fatal(err)
		}
		place := func(i int) error {
			from, to := fmt.Sprintf("%s/%d", dir, i), fmt.Sprintf("/etc/cdi/claim-%d.json", i)
			if err := os.WriteFile(from, []byte(claimSpec(i)), 0o644); err != nil {
				return err
			}
			return os.Rename(from, to)
		}
		const present = 2000
		placed := present
		t.Cleanup(func() {
			os.RemoveAll(dir)
			for i := range placed + 1000 {
				os.Remove(fmt.Sprintf("/etc/cdi/claim-%d.json", i))
			}
		})
		for i := range present {
			if err := place(i); err != nil {
				t.Fatal(err)
			}
		}
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		ctx, stop := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		var failed error
		writer.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for i := present; ctx.Err() == nil; i++ {
				<-tick.C
				if err := place(i); err != nil {
					failed = err
					return
				}
				placed = i + 1
			}
		})
		for i := range 6 {
			own := 100000 + i
			pod := h.RunPod(node.PodOptions{Name: fmt.Sprintf("claim-%d", i), Namespace: "dpdk-1",
				Annotations: map[string]string{"devices.jackfield.dev": fmt.Sprintf("vendor.com/net=claim-%d,vendor.com/net=claim-%d", own, i)}})
			if err := place(own); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Remove(fmt.Sprintf("/etc/cdi/claim-%d.json", own)) })
			start := time.Now()
			ctr := pod.Create(node.ContainerOptions{})
			took := time.Since(start)
			ctr.Start()
			if got := ctr.Output("sh", "-c", fmt.Sprintf("echo $CLAIM_%d $CLAIM_%d", own, i)); got != "yes yes" {
				t.Errorf("container %d has %q", i, got)
			}
			t.Logf("container %d was created in %v", i, took)
			pod.Remove()
		}
		stop()
		writer.Wait()
		if failed != nil {
			t.Error(failed)
		}
	})
}
