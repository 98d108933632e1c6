// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// BenchmarkFirstContainerAfterRestart kills the runtime, and measures from its next start until it is ready for pods,
// until the plugin is registered again, and until the first container that requests a device is created: in a new pod,
// and in one whose sandbox exists, which takes less time. It counts the containers that are refused and, without the
// required plugin, those that are created without their device. docs/contributing/soak.md has the
// figures.
func BenchmarkFirstContainerAfterRestart(b *testing.B) {
	for _, g := range node.Generations() {
		for _, required := range []bool{false, true} {
			if required && !compatibility.RequiredPlugin().Has(g) {
				continue
			}
			name, o := "/not required", node.Options{Generation: g}
			if required {
				name, o.Validator = "/required", &node.Validator{Required: []string{"jackfield"}}
			}
			for _, newPod := range []bool{true, false} {
				b.Run(fmt.Sprintf("%s%s/new pod=%t", g, name, newPod), func(b *testing.B) {
					h := e2e.Fresh(b, o)
					h.WriteFile("/etc/cdi/vendor.json", requiredSpec)
					h.StartPlugin(node.PluginOptions{Config: nodeConfig})
					var sum firstContainer
					for b.Loop() {
						sum.add(restartToFirstContainer(b, h, newPod))
					}
					sum.report(b)
				})
			}
		}
	}
}

// firstContainer has durations since the runtime's start.
type firstContainer struct {
	ready, registered, created time.Duration
	without, refused           int
}

func (f *firstContainer) add(o firstContainer) {
	f.ready += o.ready
	f.registered += o.registered
	f.created += o.created
	f.without += o.without
	f.refused += o.refused
}

func (f *firstContainer) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for unit, sum := range map[string]time.Duration{"ready-ms": f.ready, "registered-ms": f.registered, "container-ms": f.created} {
		b.ReportMetric(sum.Seconds()*1000/float64(b.N), unit)
	}
	b.ReportMetric(float64(f.without)/float64(b.N), "without")
	b.ReportMetric(float64(f.refused)/float64(b.N), "refused")
}

// restartToFirstContainer restarts the runtime, and creates a container again and again until it is created.
func restartToFirstContainer(b *testing.B, h *e2e.H, newPod bool) firstContainer {
	b.Helper()
	var f firstContainer
	var pod *e2e.Pod
	run := func() { pod = h.RunPod(node.PodOptions{Namespace: "dpdk-1", Annotations: asks}) }
	if !newPod {
		run()
	}
	start := time.Now()
	h.KillRuntime()
	f.ready = time.Since(start)
	registered := make(chan time.Duration)
	go func() {
		ctx, cancel := context.WithTimeout(b.Context(), node.Patience)
		defer cancel()
		if err := h.Node.WaitPlugin(ctx, "10-jackfield"); err != nil {
			b.Error(err)
		}
		registered <- time.Since(start)
	}()
	if newPod {
		run()
	}
	for attempt := uint32(0); ; attempt++ {
		ctr, err := pod.Pod.Create(b.Context(), node.ContainerOptions{Attempt: attempt})
		if err != nil && strings.Contains(err.Error(), notPresent) {
			f.refused++
			continue
		}
		if err != nil {
			b.Fatal(err)
		}
		f.created = time.Since(start)
		spec, err := ctr.OCISpec(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if _, ok := node.Env(spec, "A"); !ok {
			f.without++
		}
		break
	}
	f.registered = <-registered
	pod.Remove()
	return f
}
