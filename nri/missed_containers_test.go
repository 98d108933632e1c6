// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// A container that was created with the plugin, when no rule was for its network, is not missed: a rule that
// comes later does not have it stopped. That survives a restart of the plugin.
func TestUnmanagedContainerIsNotMissedByLaterRule(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, ""))
	h.listen("run/vsw/1/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	h.create()
	if n := len(h.p.containers.listStarted()); n != 0 {
		t.Errorf("the status has %d containers that were given something, want none", n)
	}
	h.p.records.write()
	h.replaceConfigFile(fmt.Sprintf(runningConfig, runningRule))
	h.waitForStatus("a rule", hasGeneration(2))
	h.forgetContainers()
	other := &api.Container{Id: strings.Repeat("c", 64), PodSandboxId: h.pod.Id, Name: "created without the plugin"}
	_, err := h.p.Synchronize(context.Background(), []*api.PodSandbox{h.pod}, []*api.Container{h.c, other})
	testkit.Must(t, err)
	if !testkit.Until(func() bool { return len(h.p.containers.listMissed()) > 0 }) {
		t.Fatal("no container is missed")
	}
	if missed := h.p.containers.listMissed(); len(missed) != 1 || missed[0].ContainerID != other.Id {
		t.Errorf("missed are %+v, want only the one that was created without the plugin", missed)
	}
}

// A container that would be refused by now is not stopped.
func TestContainerThatWouldBeRefusedIsNotEvicted(t *testing.T) {
	h := newReloadHost(t, granting, false)
	pod := &api.PodSandbox{Id: strings.Repeat("a", 64), Namespace: "ns", Name: "p",
		Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}}
	c := &api.Container{Id: strings.Repeat("b", 64), PodSandboxId: pod.Id, Name: "c"}
	_, err := h.p.Synchronize(context.Background(), []*api.PodSandbox{pod}, []*api.Container{c})
	testkit.Must(t, err)
	if !testkit.Until(func() bool { return len(h.p.containers.listMissed()) == 1 }) {
		t.Fatal("the container is not missed")
	}
	missed := h.p.containers.list(func(*container) bool { return true })
	evict := func() string {
		from := len(h.log.String())
		h.p.missed.evictAll(missed)
		return h.log.String()[from:]
	}
	const tried = "could not be evicted" // there is no runtime
	if log := evict(); !strings.Contains(log, tried) {
		t.Fatalf("no attempt to stop the container:\n%s", log)
	}
	h.replaceConfigFile(refusing)
	h.waitForStatus("no rule", hasGeneration(2))
	if log := evict(); strings.Contains(log, tried) {
		t.Errorf("a container that would be refused is stopped:\n%s", log)
	}
}
