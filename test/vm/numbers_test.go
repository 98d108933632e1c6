// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/node"
)

const metricsAddress = "127.0.0.1:9480"

// jackfield runs the command with the plugin's configuration and returns its output.
func (r *rig) jackfield(args ...string) string {
	r.t.Helper()
	out, _ := r.Command("jackfield", append(args, "--config", r.plugin.ConfigFile)...).CombinedOutput()
	return string(out)
}

// doctor returns the findings of jackfield doctor, with the severity of each.
func (r *rig) doctor() string {
	r.t.Helper()
	return r.jackfield("doctor", "--containerd-config", r.ConfigFile())
}

// metric returns the line of a metric of the plugin.
func (r *rig) metric(name string) string {
	r.t.Helper()
	answer, err := http.Get("http://" + metricsAddress + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^` + name + ` .*$`).FindString(string(text))
}

// reportsRemoved returns an error unless the output of a command reports nodes of the container as removed.
func reportsRemoved(command, output string, nodes []string) error {
	for _, node := range nodes {
		if !strings.Contains(output, "telco/old/app cannot open "+node+" (") {
			return fmt.Errorf("%s does not report that the device of %s was removed: %s", command, node, output)
		}
	}
	return nil
}

// A VF and a vDPA device of a running container are removed. While the container has the VF open, the removal blocks in
// the kernel, which blocks neither the commands nor the creation of pods, and no other container gets the VF. After the
// removal, status and doctor name the container. Then new devices get the numbers, and the kernel lets the container
// open them. The log, the metric, status and doctor report this, and no other container gets the new devices before the
// first container ends.
func TestReusedNumbersOfRemovedDevices(t *testing.T) {
	Require(t)
	vdpaDevice := func(ctx context.Context, action, name string) {
		args := []string{"dev", action, name}
		if action == "add" {
			args = []string{"dev", "add", "name", name, "mgmtdev", "vdpasim_net", "mac", "52:54:00:00:05:07"}
		}
		if err := run(ctx, "vdpa", args...); err != nil {
			t.Error(err)
		}
	}
	bindAll(t, "vfio-pci", otherVF)
	vdpaDevice(t.Context(), "add", "sim1")
	r := newRig(t, config+"metrics: {listen: \""+metricsAddress+"\"}\n")
	pod := r.pod("old", pci(otherVF), vdpa("sim1", "vhost", ""))
	c := pod.Run(app("sh", "-c", probeTool+"hold "+groupNode(otherVF)+" "+otherVF+" & exec sleep 9999"))
	c.WaitLogs("mapped")
	oldNodes := []string{groupNode(otherVF), cdevNode(otherVF), vhostNode("sim1")}
	numbers := func(nodes ...string) (all string) {
		for _, n := range nodes {
			major, minor := number(t, n)
			all += fmt.Sprintf("%d:%d ", major, minor)
		}
		return all
	}
	old := numbers(oldNodes...)
	if got := r.doctor(); strings.Contains(got, "which it was given for") {
		t.Errorf("doctor, before the removal: %s", got)
	}

	removed := removeOpenVFs(t)
	check(t, r.jackfield("status"), "1 running with injected devices")
	check(t, r.doctor(), "plugin", r.NRISocket())
	second := r.requiringPod("second", pci(otherVF))
	check(t, second.CreateFails(app()).Error(), "the device is bound to no driver")
	check(t, explain(r.Command("jackfield", "explain", "-", "--config", r.plugin.ConfigFile, "--sandbox-id", second.ID), "second"),
		"would be refused", "bound to no driver")
	select {
	case err := <-removed:
		t.Fatalf("the kernel did not wait for the container: %v", err)
	default:
	}
	c.Output("sh", "-c", "kill -9 -1")
	vdpaDevice(t.Context(), "del", "sim1")
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	r.Eventually(func() error {
		return errors.Join(reportsRemoved("status", r.jackfield("status"), oldNodes), reportsRemoved("doctor", r.doctor(), oldNodes))
	})
	if err := createVFs(t.Context(), pf1, 2); err != nil {
		t.Fatal(err)
	}
	bindAll(t, "vfio-pci", otherVF1)
	vdpaDevice(t.Context(), "add", "sim2")
	t.Cleanup(func() { vdpaDevice(context.Background(), "del", "sim2") })
	if now := numbers(groupNode(otherVF1), cdevNode(otherVF1), vhostNode("sim2")); now != old {
		t.Fatalf("the new devices have the numbers %s, and the removed ones had %s", now, old)
	}
	check(t, r.probe(c, "group", oldNodes[0], otherVF1), "mapped")

	r.plugin.WaitLog(0, "leads to another device")
	r.Eventually(func() error {
		if got := r.metric("jackfield_device_numbers_reused"); got != "jackfield_device_numbers_reused 3" {
			return fmt.Errorf("the metric is %q", got)
		}
		return nil
	})
	for name, got := range map[string]string{"status": r.jackfield("status"), "doctor": r.doctor()} {
		for old, now := range map[string]string{oldNodes[0]: otherVF1, oldNodes[1]: otherVF1, oldNodes[2]: "sim2"} {
			if !regexp.MustCompile("telco/old/app can open .*" + now + " through " + old + " ").MatchString(got) {
				t.Errorf("%s does not report %s through %s: %s", name, now, old, got)
			}
		}
	}
	for name, d := range map[string]device{"vf": pci(otherVF1), "vdpa": vdpa("sim2", "vhost", "")} {
		check(t, r.requiringPod("new-"+name, d).CreateFails(app()).Error(), `container "telco/old/app" can still open it`)
	}
	pod.Remove()
	r.requiringPod("newer", pci(otherVF1)).Run(app())
	r.Eventually(func() error {
		if got := r.metric("jackfield_device_numbers_reused"); got != "jackfield_device_numbers_reused 0" {
			return fmt.Errorf("after the pod's end the metric is %q", got)
		}
		return nil
	})
	if got := r.doctor(); strings.Contains(got, "which it was given for") {
		t.Errorf("doctor, after the pod's end: %s", got)
	}
}

// The container of a pod with a user namespace cannot open its devices, until the udev rules in the log's notes are
// applied.
func TestUdevRuleOpensNodesInUserNamespace(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0)
	r := newRig(t, config)
	c := r.podWith(node.PodOptions{Name: "userns", UserNS: 200000}, pci(vf0), vdpa("sim0", "vhost", "")).Run(app())
	uses := [][]string{{"group", groupNode(vf0), vf0}, {"cdev", cdevNode(vf0)}, {"vdpa", vhostNode("sim0")}}
	for _, use := range uses {
		check(t, r.probe(c, use...), "permission denied")
	}
	// The pages have the same rules.
	rules := []string{`SUBSYSTEM=="vfio", MODE="0666"`, `SUBSYSTEM=="vfio-dev", MODE="0666"`, `KERNEL=="iommu", MODE="0666"`,
		`SUBSYSTEM=="vdpa", DRIVER=="vhost_vdpa", RUN+="/bin/sh -c 'chmod 0666 /dev/vhost-vdpa-*'"`}
	for _, rule := range rules {
		check(t, strings.ReplaceAll(r.plugin.Log(), `\`, ""), "add the udev rule "+rule)
	}
	applyUdevRules(t, rules)
	t.Cleanup(func() {
		for _, node := range []string{groupNode(vf0), cdevNode(vf0), "/dev/iommu", vhostNode("sim0")} {
			if err := os.Chmod(node, 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	for i, printed := range []string{"mapped", "mapped", "virtio device 1"} {
		check(t, r.probe(c, uses[i]...), printed)
	}
}

// applyUdevRules runs udev with rules for the devices of the machine.
func applyUdevRules(t *testing.T, rules []string) {
	t.Helper()
	const file = "/etc/udev/rules.d/90-test.rules"
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(strings.Join(rules, "\n")+"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	udev := exec.CommandContext(t.Context(), "/usr/lib/systemd/systemd-udevd")
	if err := udev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = udev.Process.Kill()
		_ = udev.Wait()
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	})
	err = waitUntil(t.Context(), "udev", func() bool { return run(t.Context(), "udevadm", "control", "--ping") == nil })
	if err != nil {
		t.Fatal(err)
	}
	// At boot, udev gets the same events.
	if err := run(t.Context(), "udevadm", "trigger", "--settle", "--action=add"); err != nil {
		t.Fatal(err)
	}
}
