// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestDialectsAreRead(t *testing.T) {
	c, err := Parse([]byte(`
dialects:
  - {match: {resource: "example.com/vhost-*"}, use: virtio-device-plugin}
  - {match: {network: "a/*", resource: "*"}, use: 6wind}
  - {match: {network: "*/kv"}, use: kubevirt, creator: host}
  - {match: {network: "*/own"}, creator: application}
`), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		network, resource, word string
		use                     string
		creator, path           Side
	}{
		{"x/y", "", "client", Specification, SideHost, SideHost},
		{"x/y", "", "server", Specification, SideApplication, SideHost},
		{"x/y", "", "slave", Specification, SideHost, SideHost},
		{"x/y", "", "master", Specification, SideApplication, SideHost},
		{"x/y", "", "Client", Specification, "", SideHost},
		{"a/y", "example.com/vhost-1", "client", "virtio-device-plugin", SideApplication, SideHost},
		{"a/y", "example.com/vhost-1", "server", "virtio-device-plugin", SideHost, SideHost},
		{"a/y", "other.com/x", "server", "6wind", SideApplication, SideContainer},
		{"b/kv", "", "client", "kubevirt", SideHost, SideHost},
		{"b/own", "", "client", Specification, SideApplication, SideHost},
	} {
		d := c.Dialect(tc.network, tc.resource, "")
		if d.Use != tc.use || d.CreatedBy(tc.word) != tc.creator || d.PathSide() != tc.path {
			t.Errorf("%s %s %s: %s, created by %q, path of %q", tc.network, tc.resource, tc.word, d.Use, d.CreatedBy(tc.word), d.PathSide())
		}
	}
	d := c.Dialect("", "", "other.example.com")
	if d.Use != DeviceMetadata || d.CreatedBy("server") != SideApplication || d.PathSide() != SideContainer {
		t.Errorf("the dialect of device metadata: %+v", d)
	}
	if got := (Dialect{}).CreatedBy("client"); got != SideHost {
		t.Errorf("the zero Dialect: %q", got)
	}
}
