// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/test/hangfs"
	nritest "github.com/jackfield/jackfield/test/nri"
)

// The plugin gets SIGTERM, which ends its context, while a container is created. The container gets
// its device or an error, and is never created without it. An unresponsive directory delays the
// creation.
func TestShutdownDuringCreation(t *testing.T) {
	for name, answers := range map[string]bool{"the directory answers": true, "the directory never answers": false} {
		t.Run(name, func(t *testing.T) {
			var opts nritest.Options
			if !answers {
				opts.RequestTimeout = 6 * time.Second // it is waited for
			}
			n := newNode(t, policyYAML, opts)
			n.write("/etc/cdi/vendor.json", cdiSpec)
			check(t, os.MkdirAll(n.path("/run/cdi"), 0o755))
			n.mustCreate(n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}))
			pod := n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
			release := hangfs.Mount(t, n.path("/run/cdi"))
			began := n.plugin.Counters().Containers.Load()
			type result struct {
				c   *nritest.Created
				err error
			}
			created, ended := make(chan result, 1), make(chan struct{})
			go func() {
				c, err := n.create(pod, nil)
				created <- result{c, err}
			}()
			eventually(t, "the creation is under way", func() bool { return n.plugin.Counters().Containers.Load() > began })
			time.Sleep(50 * time.Millisecond)
			go func() {
				n.stop()
				close(ended)
			}()
			select {
			case <-ended:
				t.Error("the plugin ended with a creation under way")
			case <-time.After(200 * time.Millisecond):
			}
			if answers {
				release()
			}
			select {
			case r := <-created:
				switch {
				case r.err == nil && !slices.Contains(r.c.Spec.Process.Env, "DEV=a"):
					t.Error("the container was created without its device")
				case r.err != nil && !strings.Contains(r.err.Error(), "given up before the runtime's deadline"):
					t.Errorf("refused with %v", r.err)
				case answers != (r.err == nil):
					t.Errorf("answered with %v", r.err)
				}
			case <-time.After(testkit.Hangs):
				t.Fatal("the creation never ended")
			}
			select {
			case <-ended:
			case <-time.After(testkit.Hangs):
				t.Fatal("the plugin never ended")
			}
		})
	}
}
