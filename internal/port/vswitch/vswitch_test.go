// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"
)

func TestPortNameIsUniqueForEachInterface(t *testing.T) {
	seen := map[string]Owner{}
	for _, o := range []Owner{
		{ContainerID: "a", Interface: "net1"}, {ContainerID: "a", Interface: "net2"},
		{ContainerID: "b", Interface: "net1"}, {ContainerID: "", Interface: ""},
	} {
		name := PortName(o)
		if len(name) != 15 || !IsPortName(name) {
			t.Errorf("PortName(%+v) = %q, want 15 bytes that IsPortName accepts", o, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%+v and %+v have the same name %q", o, other, name)
		}
		seen[name] = o
	}
	a := Owner{ContainerID: "a", Interface: "net1"}
	withPod := a
	withPod.Network, withPod.Namespace, withPod.Pod = "n", "ns", "p"
	if PortName(a) != PortName(withPod) {
		t.Error("the name depends on the pod; DEL does not always know the pod")
	}
}

func TestIsPortNameRefusesOtherNames(t *testing.T) {
	for _, name := range []string{"", "jf", "eth0", "jf0123456789abcd", "jf0123456789abz", "jf0123456789AB0", "xx0123456789ab0"} {
		if IsPortName(name) {
			t.Errorf("IsPortName(%q) = true", name)
		}
	}
}

func TestRefusalNamesSwitchPortFieldAndRemedy(t *testing.T) {
	err := error(&Refusal{Switch: "ovs0", Port: "jf1", Field: "bridge", Said: "no bridge br9", Remedy: "create it", Kind: errdefs.ErrNotFound})
	if want := `vswitch "ovs0" refuses port "jf1": bridge: no bridge br9: create it`; err.Error() != want {
		t.Errorf("got %s\nwant %s", err, want)
	}
	if !errors.Is(err, errdefs.ErrNotFound) {
		t.Error("the sentinel is lost")
	}
}
