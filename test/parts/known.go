// SPDX-License-Identifier: Apache-2.0

package parts

import "strings"

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

// Prometheus has promtool, which reads rules and metrics as the server does.
func Prometheus() Package { return Package{Suite: "bookworm", Name: "prometheus", Version: "2."} }

// CNIPlugins are bridge, ptp, host-local, loopback and the rest.
func CNIPlugins() Package {
	return Package{Suite: "bookworm", Name: "containernetworking-plugins"}
}

// Iptables is iptables, which the portmap plugin runs, with the libraries that it is
// linked against. iptables itself comes first.
func Iptables() []Package {
	var pkgs []Package
	for _, name := range strings.Fields("iptables libip4tc2 libip6tc2 libxtables12 libnftnl11 libmnl0 libnetfilter-conntrack3 libnfnetlink0") {
		pkgs = append(pkgs, Package{Suite: "bookworm", Name: name})
	}
	return pkgs
}

// Crun is crun 1.8.1, and the library that it needs beside the C library.
func Crun() []Package {
	return []Package{{Suite: "bookworm", Name: "crun", Version: "1.8."}, {Suite: "bookworm", Name: "libyajl2"}}
}

// Conmon monitors the containers of CRI-O. It needs only libraries of Debian's base system.
func Conmon() Package { return Package{Suite: "bookworm", Name: "conmon"} }

// NewCrun is crun 1.21, and the libraries that it needs beside those of Debian 12's base system. crun comes first, the C
// library second.
func NewCrun() []Package {
	pkgs := []Package{{Suite: "trixie", Name: "crun", Version: "1.21"}}
	for _, name := range strings.Fields("libc6 libgcc-s1 libseccomp2 libsystemd0 libyajl2 libcap2") {
		pkgs = append(pkgs, Package{Suite: "trixie", Name: name})
	}
	return pkgs
}

// Podman is Podman 4.3.1 with conmon, and the libraries that they need beside those
// of Debian's base system. Podman comes first, conmon second.
func Podman() []Package {
	pkgs := []Package{{Suite: "bookworm", Name: "podman", Version: "4.3."}, {Suite: "bookworm", Name: "conmon"}}
	for _, name := range strings.Fields("libsubid4 libgpgme11 libassuan0 libgpg-error0 libseccomp2 libdevmapper1.02.1") {
		pkgs = append(pkgs, Package{Suite: "bookworm", Name: name})
	}
	return pkgs
}

// Podman5 is Podman 5.4 with netavark 1.14, crun 1.21 and conmon, and the libraries that they need beside those of
// Debian 12's base system, the C library among them.
func Podman5() []Package {
	pkgs := []Package{{Suite: "trixie", Name: "podman", Version: "5.4."}, {Suite: "trixie", Name: "netavark", Version: "1.14."}, {Suite: "trixie", Name: "crun", Version: "1.21"}}
	for _, name := range strings.Fields(`conmon passt uidmap golang-github-containers-common libc6 libgcc-s1 libsubid5 libgpgme11t64 libassuan9
		libgpg-error0 libseccomp2 libsqlite3-0 libsystemd0 libyajl2 libcap2 libglib2.0-0t64`) {
		pkgs = append(pkgs, Package{Suite: "trixie", Name: name})
	}
	return pkgs
}

// Uidmap is newuidmap and newgidmap, by which an ordinary user gets a range of users
// of a namespace; libsubid, which they need, comes with Podman.
func Uidmap() Package { return Package{Suite: "bookworm", Name: "uidmap"} }

// Buildah is Buildah 1.28, which needs the libraries of Podman.
func Buildah() Package { return Package{Suite: "bookworm", Name: "buildah", Version: "1.28."} }

// DPDK is DPDK 22.11 with dpdk-testpmd, the drivers for vhost-user (net_vhost,
// net_virtio), memif and PCI, and every library that these are linked against, the
// C library among them: enough to run testpmd where nothing else is, in a
// container without a distribution. testpmd comes first.
//
// The set is closed and minimal, which test/e2e/dpdk holds; it is the same for
// amd64 and arm64. Installing dpdk-dev would bring several times as much.
func DPDK() []Package {
	var pkgs []Package
	add := func(prefix, version, names string) {
		for _, name := range strings.Fields(names) {
			pkgs = append(pkgs, Package{Suite: "bookworm", Name: prefix + name, Version: version})
		}
	}
	add("", "22.11.", "dpdk-dev")
	add("librte-", "22.11.", "net-vhost23 net-virtio23 net-memif23 mempool-ring23 bus-vdev23 bus-pci23")
	// What testpmd and these are linked against: libraries, and drivers that
	// testpmd has commands for.
	add("librte-", "22.11.", `bitratestats23 bpf23 cmdline23 cryptodev23 dmadev23 eal23 ethdev23 eventdev23 gro23 gso23
		hash23 ip-frag23 kvargs23 latencystats23 mbuf23 mempool23 meter23 metrics23 net23 pcapng23 pci23 pdump23
		rcu23 reorder23 ring23 sched23 security23 telemetry23 timer23 vhost23`)
	add("librte-", "22.11.", `bus-auxiliary23 bus-dpaa23 common-dpaax23 common-iavf23 common-mlx5-23 crypto-scheduler23
		mempool-dpaa23 net-bnxt23 net-bond23 net-dpaa23 net-i40e23 net-ice23 net-ixgbe23 net-mlx5-23`)
	add("", "", `libc6 libnuma1 libfdt1 libbsd0 libmd0 libjansson4 libelf1 zlib1g libibverbs1 ibverbs-providers
		libnl-3-200 libnl-route-3-200`)
	// libpcap brings D-Bus, and that systemd's library.
	add("", "", "libpcap0.8 libdbus-1-3 libsystemd0 libcap2 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1")
	return pkgs
}

// DPDKHeaders has what the compiler needs for an application of that DPDK. Its libraries are those of DPDK.
func DPDKHeaders() []Package {
	return []Package{{Suite: "bookworm", Name: "libdpdk-dev", Version: "22.11."}, {Suite: "bookworm", Name: "libbsd-dev"}}
}

// OVS is Open vSwitch 3.1 with DPDK's datapath, its database server and its
// clients, and the libraries that these need on top of DPDK's.
func OVS() []Package {
	var pkgs []Package
	for _, name := range strings.Fields("openvswitch-switch-dpdk openvswitch-switch openvswitch-common") {
		pkgs = append(pkgs, Package{Suite: "bookworm", Name: name, Version: "3.1."})
	}
	for _, name := range strings.Fields("libbpf1 libcap-ng0 libssl3 libunbound8 libxdp1 libevent-2.1-7 libnettle8 libhogweed6 libgmp10") {
		pkgs = append(pkgs, Package{Suite: "bookworm", Name: name})
	}
	return pkgs
}

// Grout is grout 0.19 with its command-line client grcli, the drivers for vhost-user and memif, and the libraries that these are
// linked against, the C library among them: Debian 12 has an older one. grout comes first.
func Grout() []Package {
	pkgs := []Package{{Suite: "forky", Name: "grout", Version: "0.19."}}
	add := func(prefix, version, names string) {
		for _, name := range strings.Fields(names) {
			pkgs = append(pkgs, Package{Suite: "forky", Name: prefix + name, Version: version})
		}
	}
	// grout has only a part of the drivers in its dependencies.
	add("librte-", "25.11", "net-vhost26 net-virtio26 net-memif26 mempool-ring26 bus-vdev26 bus-pci26 bus-fslmc26")
	add("librte-", "25.11", `argparse26 bpf26 common-dpaax26 cryptodev26 dmadev26 eal26 ethdev26 eventdev26 fib26 graph26 hash26
		kvargs26 log26 mbuf26 mempool26 meter26 net26 pcapng26 pci26 rcu26 rib26 ring26 telemetry26 timer26 vhost26`)
	add("", "", `libc6 libgcc-s1 libecoli0 libevent-core-2.1-7t64 libevent-extra-2.1-7t64 libevent-pthreads-2.1-7t64 libmnl0 libnuma1
		libedit2 libbsd0 libmd0 libtinfo6 libyaml-0-2 libfdt1 libelf1t64 zlib1g libzstd1`)
	// libpcap brings D-Bus, and that systemd's library.
	add("", "", "libpcap0.8t64 libdbus-1-3 libsystemd0")
	return pkgs
}

// RPM is RPM 4.18, its configuration, and the libraries that rpm is linked against beside those of Debian's base
// system. rpm comes first, its configuration second.
func RPM() []Package {
	var pkgs []Package
	for _, name := range strings.Fields("rpm rpm-common librpm9 librpmio9 libpopt0 liblua5.3-0 libsqlite3-0") {
		pkgs = append(pkgs, Package{Suite: "bookworm", Name: name})
	}
	return pkgs
}

// StorageDaemon is QEMU's storage daemon, which serves vhost-user-blk, and the libraries that it needs beside the C
// library. The daemon comes first.
func StorageDaemon() []Package {
	pkgs := []Package{{Suite: "bookworm", Name: "qemu-system-common", Version: "7.2"}}
	for _, name := range strings.Fields(`liburing2 libfuse3-3 libaio1 libglib2.0-0 libgnutls30 libnuma1 libzstd1 zlib1g libnettle8
		libhogweed6 libgmp10 libp11-kit0 libidn2-0 libunistring2 libtasn1-6 libpcre2-8-0 libffi8`) {
		pkgs = append(pkgs, Package{Suite: "bookworm", Name: name})
	}
	return pkgs
}

// Python is Python 3.11 with its standard library, and the libraries that it needs, the C library among them.
func Python() []Package {
	var pkgs []Package
	for _, name := range strings.Fields("python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libexpat1 zlib1g") {
		pkgs = append(pkgs, Package{Suite: "bookworm", Name: name})
	}
	return pkgs
}
