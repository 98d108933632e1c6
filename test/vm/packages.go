// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/parts"
)

// backports is the suite of the kernel, of QEMU and of their parts. Other packages come from the release.
const backports = "bookworm-backports"

func packages(suite, names string) []parts.Package {
	var pkgs []parts.Package
	for _, name := range strings.Fields(names) {
		pkgs = append(pkgs, parts.Package{Suite: suite, Name: name})
	}
	return pkgs
}

// emulatorPackages are QEMU with its firmware and the libraries that it needs beside the C library. SeaBIOS is older
// than the one of backports: QEMU 10.0 loses the upper half of addresses that the newer one assigns to virtual
// functions.
func emulatorPackages() []parts.Package {
	return append(packages(backports, "qemu-system-x86 qemu-system-data"), packages("bookworm", `seabios ipxe-qemu
		libaio1 libbpf1 libcapstone4 libdaxctl1 libelf1 libfdt1 libffi8 libfuse3-3 libglib2.0-0 libgmp10 libgnutls30 libhogweed6
		libibverbs1 libidn2-0 libjpeg62-turbo libkeyutils1 libkmod2 libndctl6 libnettle8 libnl-3-200 libnl-route-3-200
		libnuma1 libp11-kit0 libpcre2-8-0 libpixman-1-0 libpmem1 libpng16-16 librdmacm1 libsasl2-2 libseccomp2 libslirp0
		libtasn1-6 libudev1 libunistring2 liburing2 libvdeplug2 libzstd1 zlib1g`)...)
}

// userlandPackages are the programs in the machine and the libraries that they need.
func userlandPackages() []parts.Package {
	pkgs := append(parts.DPDK(), parts.Crun()...)
	pkgs = append(pkgs, parts.Busybox(), parts.CNIPlugins(), parts.Runc(),
		parts.Package{Suite: "bookworm", Name: "librte-net-e1000-23", Version: "22.11."})
	// The C library needs libgcc-s1 to cancel threads. The last two lines are udev and its libraries.
	return append(pkgs, packages("bookworm", `apparmor bash dash ibverbs-utils iproute2 libbpf1 libgcc-s1 libkmod2 libmnl0
		libpci3 libseccomp2 libssl3 libtinfo6 libudev1 pciutils
		udev libsystemd-shared libacl1 libapparmor1 libaudit1 libblkid1 libcap-ng0 libcap2 libcrypt1 libgcrypt20 libgpg-error0
		libip4tc2 liblz4-1 liblzma5 libmount1 libpam0g libpcre2-8-0 libselinux1 libzstd1`)...)
}

// kernel is the kernel of the machine. Its packages are fetched to build the modules and the image, and removed then.
type kernel struct {
	store   *parts.Store
	meta    parts.Unpacked // depends on the packages of the current version
	Version string         // as uname -r prints it
}

// findKernel finds the current kernel of the suite, or the kernel in the cache.
func findKernel(ctx context.Context, store *parts.Store) (*kernel, error) {
	// The package contains only a link that names the package of the current version.
	const meta = "linux-image-amd64"
	current, err := store.Get(ctx, parts.Package{Suite: backports, Name: meta})
	if err != nil {
		return nil, err
	}
	image, err := os.Readlink(current.Path("usr/share/doc/" + meta))
	if err != nil {
		return nil, fmt.Errorf("find the version of the kernel: %w", err)
	}
	version, ok := strings.CutPrefix(filepath.Base(image), "linux-image-")
	if !ok || !strings.HasSuffix(version, flavour) {
		return nil, fmt.Errorf("package %s refers to %q, which is no kernel: %w", meta, image, errdefs.ErrNotFound)
	}
	return &kernel{store: store, meta: current, Version: version}, nil
}

const flavour = "-amd64"

// image is the package of the kernel and its modules.
func (k *kernel) image() []parts.Package { return packages(backports, "linux-image-"+k.Version) }

// sources are the headers, the tools and the source that modules are built with.
func (k *kernel) sources() []parts.Package {
	release := strings.TrimSuffix(k.Version, flavour)
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return packages(backports, strings.Join([]string{"linux-headers-" + k.Version, "linux-headers-" + release + "-common",
		"linux-kbuild-" + release, "linux-source-" + major + "." + minor}, " "))
}

// withPackages fetches packages of the kernel's version, calls f with them, and removes them, which saves 350 MB.
func (k *kernel) withPackages(ctx context.Context, pkgs []parts.Package, f func([]parts.Unpacked) error) error {
	got, err := k.store.Ensure(ctx, pkgs...)
	for _, p := range got {
		if err == nil && p.FullVersion != k.meta.FullVersion {
			err = fmt.Errorf("package %s has version %s and the kernel %s: %w", p.Name, p.FullVersion, k.meta.FullVersion, errdefs.ErrNotFound)
		}
	}
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("the suite has another kernel; remove the directory %s, so that its kernel is used: %w", filepath.Dir(k.meta.Dir), err)
	}
	if err == nil {
		err = f(got)
	}
	if err != nil {
		return err
	}
	return k.store.Remove(ctx, pkgs...)
}
