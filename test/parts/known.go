// SPDX-License-Identifier: Apache-2.0

package parts

// Package names a binary package of a Debian suite.
type Package struct {
	// Suite is the codename to take it from, such as "bookworm".
	Suite string
	// Name is the binary package's name.
	Name string
	// Version is a prefix that the version must have, such as "1.7."; empty
	// takes any. A suite that moved on to another generation is an error then,
	// and not a test that quietly checks something else.
	Version string
}

// String returns "suite/name".
func (p Package) String() string { return p.Suite + "/" + p.Name }

// ContainerdV1 is containerd 1.7 with NRI 0.6.
func ContainerdV1() Package { return Package{Suite: "trixie", Name: "containerd", Version: "1.7."} }

// ContainerdV2 is containerd 2.x with NRI 0.8 or later.
func ContainerdV2() Package { return Package{Suite: "forky", Name: "containerd", Version: "2."} }

// Runc is runc 1.1; newer packages need a newer C library than Debian 12 has.
func Runc() Package { return Package{Suite: "bookworm", Name: "runc", Version: "1.1."} }

// Busybox is the static busybox that the test image is made of.
func Busybox() Package { return Package{Suite: "bookworm", Name: "busybox-static"} }

// CNIPlugins are bridge, ptp, host-local, loopback and the rest.
func CNIPlugins() Package {
	return Package{Suite: "bookworm", Name: "containernetworking-plugins"}
}
