// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"slices"
	"strings"
	"testing"
)

func TestKnownPackages(t *testing.T) {
	all := append(DPDK(), ContainerdV1(), ContainerdV2(), Runc(), Busybox(), CNIPlugins(), Prometheus(), Uidmap(), Buildah())
	all = append(append(append(all, Grout()...), RPM()...), StorageDaemon()[0], Python()[0])
	all = append(all, DPDKHeaders()...)
	for i, p := range all {
		if err := p.validate(); err != nil {
			t.Error(err)
		}
		if slices.Contains(all[:i], p) {
			t.Errorf("%s is named twice", p)
		}
	}
}

// Libraries and drivers of another DPDK do not load, so all of them are of one.
func TestDPDKIsOfOneGeneration(t *testing.T) {
	pkgs := DPDK()
	if pkgs[0].Name != "dpdk-dev" {
		t.Errorf("the first is %s, and not the one with testpmd", pkgs[0])
	}
	for _, p := range pkgs {
		if dpdk := strings.Contains(p.Name, "dpdk") || strings.HasPrefix(p.Name, "librte-"); dpdk != (p.Version == "22.11.") || p.Suite != "bookworm" {
			t.Errorf("%s has to have the version %q", p, p.Version)
		}
		// The symbol version of DPDK 22.11.
		if strings.HasPrefix(p.Name, "librte-") && !strings.HasSuffix(p.Name, "23") {
			t.Errorf("%s is of another ABI", p)
		}
	}
}
