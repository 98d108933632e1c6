// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/vswitch"
)

// benchValues of the chart. A pod gets the CDI device and, by its name, the vswitch's socket.
const benchValues = `
config:
  metrics: {listen: ":9480"}
  sockets: {named: {vswitch: {path: ` + portSocket + `, at: ` + portSocket + `}}}
  policy:
    rules:
      - name: bench
        for: {namespaces: ["bench-*"]}
        allow: {cdi: ["acme.com/nic=*"], namedSockets: [vswitch]}
`

// startBench starts a cluster whose network has no plugin of Jackfield, and does not install Jackfield.
func startBench(ctx context.Context) (err error) {
	if shared.cluster, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		return err
	}
	if err := os.WriteFile(cdiFile, []byte(cdiYAML), 0o644); err != nil {
		return err
	}
	path := shared.cluster.HostPath(portSocket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	shared.vswitch, err = vswitch.Listen(vswitch.VhostUser, path, vswitch.Greeting("the vswitch"))
	return err
}

// readyTime creates pods with one `kubectl apply` and returns the time until all are ready. It removes them
// and waits until the node has nothing of them.
func (k *K) readyTime(p Pod, spec map[string]any, replicas int, check string) time.Duration {
	k.t.Helper()
	before := k.tasks()
	manifest := deploymentOf(p, spec, replicas)
	began := time.Now()
	if _, err := k.KubectlInput(k.ctx, manifest, "apply", "--filename=-"); err != nil {
		k.t.Fatal(err)
	}
	k.Kubectl("--namespace", p.Namespace, "rollout", "status", "deployment/"+p.Name, "--timeout="+cluster.Patience.String())
	took := time.Since(began)
	contains(k.t, k.Kubectl("--namespace", p.Namespace, "exec", "deployment/"+p.Name, "--", "sh", "-c", check), vswitch.Greeting("the vswitch"))
	k.Kubectl("--namespace", p.Namespace, "delete", "deployment", p.Name, "--cascade=foreground")
	k.Wait("the pods' containers have ended", func() error {
		if now := k.tasks(); now > before {
			return fmt.Errorf("there were %d containers and are %d", before, now)
		}
		return nil
	})
	return took
}

// tasks returns the number of containers on the node, sandboxes included.
func (k *K) tasks() int {
	k.t.Helper()
	entries, err := os.ReadDir(k.HostPath("/run/containerd/io.containerd.runtime.v2.task/k8s.io"))
	if err != nil && !os.IsNotExist(err) {
		k.t.Fatal(err)
	}
	return len(entries)
}

// creationTime returns the plugin's mean time for the creation of a container, from its metrics.
func (k *K) creationTime(containers int) time.Duration {
	k.t.Helper()
	metrics := k.Kubectl("get", "--raw", "/api/v1/namespaces/"+cluster.Namespace+"/pods/"+k.PluginPod()+":9480/proxy/metrics")
	value := func(name string) float64 {
		_, text, _ := strings.Cut(metrics, "\n"+name+`{handler="CreateContainer"} `)
		text, _, _ = strings.Cut(text, "\n")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			k.t.Fatalf("read %s: %v in %s", name, err, metrics)
		}
		return v
	}
	count := value("jackfield_handler_duration_seconds_count")
	if int(count) < containers {
		k.t.Fatalf("the plugin created %v containers, want %d", count, containers)
	}
	return time.Duration(value("jackfield_handler_duration_seconds_sum") / count * float64(time.Second))
}

// benchTurn counts the rounds of all runs of the benchmark, so that the order changes with -count, too.
var benchTurn int

// BenchmarkPodsReady measures the time from `kubectl apply` until 40 pods are ready: with a device and a socket
// from Jackfield, without Jackfield, device and socket, and with hostPath volumes of the same device and of the
// socket's directory. Jackfield is installed only for its own pods. The three take turns, in changing order.
func BenchmarkPodsReady(b *testing.B) {
	k := startWith(b, startBench)
	const pods = 40
	ns := k.Namespace(fmt.Sprint("bench-", time.Now().Unix()), nil) // a former run's may still be deleted
	ask := fmt.Sprintf("[ -c /dev/acme0 ] && sockclient connect %s", portSocket)
	pod := Pod{Namespace: ns, Name: "router"}
	hostPath := pod.spec()
	hostPath["containers"] = []any{Pod{Container: map[string]any{"env": []any{map[string]any{"name": "ACME_NIC", "value": "nic0"}}, "volumeMounts": []any{
		map[string]any{"name": "device", "mountPath": "/dev/acme0"}, map[string]any{"name": "socket", "mountPath": filepath.Dir(portSocket)}}}}.container()}
	hostPath["volumes"] = []any{map[string]any{"name": "device", "hostPath": map[string]any{"path": "/dev/zero", "type": "CharDevice"}},
		map[string]any{"name": "socket", "hostPath": map[string]any{"path": filepath.Dir(portSocket), "type": "Directory"}}}

	var with, without, byHostPath, creation []time.Duration
	turns := []func(){
		func() {
			if err := k.InstallJackfield(k.ctx, benchValues); err != nil {
				b.Fatal(err)
			}
			p := pod
			p.Annotations = map[string]string{deviceKey: nic0 + ",socket:vswitch"}
			with = append(with, k.readyTime(p, p.spec(), pods, ask))
			creation = append(creation, k.creationTime(pods))
			if _, err := k.Helm(k.ctx, "uninstall", cluster.Release, "--namespace", cluster.Namespace, "--wait"); err != nil {
				b.Fatal(err)
			}
		},
		func() {
			without = append(without, k.readyTime(pod, pod.spec(), pods, "echo '"+vswitch.Greeting("the vswitch")+"'"))
		},
		func() { byHostPath = append(byHostPath, k.readyTime(pod, hostPath, pods, ask)) },
	}
	for ; b.Loop(); benchTurn++ {
		for i := range turns {
			turns[(benchTurn+i)%len(turns)]()
		}
	}
	median := func(times []time.Duration) float64 {
		slices.Sort(times)
		return times[len(times)/2].Seconds()
	}
	b.Logf("with %v, without %v, hostPath %v", with, without, byHostPath)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(with), "s")
	b.ReportMetric(median(without), "without-s")
	b.ReportMetric(median(byHostPath), "hostpath-s")
	b.ReportMetric(median(with)/median(without), "x/without")
	b.ReportMetric(median(with)/median(byHostPath), "x/hostpath")
	b.ReportMetric(median(creation)*1e3, "create-ms")
}
