// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackfield/jackfield/test/parts"
)

//go:embed modules.sh
var modulesScript string

//go:embed start.sh
var startScript string

//go:embed initramfs.sh
var initramfsScript string

// imageSource is a part of the key of images, so that a changed layout makes a new image.
//
//go:embed image.go
var imageSource string

// image has the files from which the machine boots.
type image struct {
	Version              string // of the kernel
	Kernel, Initrd, Root string
}

// builder builds the image in the cache folder.
type builder struct {
	cache    string
	logf     func(string, ...any)
	kernel   *kernel
	userland []parts.Unpacked
	kmod     parts.Unpacked
}

// keyOf returns a short digest of packages and texts.
func keyOf(pkgs []parts.Unpacked, texts ...string) string {
	h := sha256.New()
	for _, p := range pkgs {
		fmt.Fprintln(h, p.Package, p.SHA256)
	}
	for _, t := range texts {
		fmt.Fprintln(h, t)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6])
}

// run runs a command whose output is only of interest if it fails.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, args[len(args)-1], err, out)
	}
	return nil
}

// build builds the image unless the cache has it.
func (b *builder) build(ctx context.Context) (*image, error) {
	k := b.kernel
	modules := filepath.Join(b.cache, "modules-"+keyOf([]parts.Unpacked{k.meta}, modulesScript))
	err := parts.Once(ctx, modules, b.logf, func(tmp string) error {
		b.logf("building modules for Linux %s, once", k.Version)
		return k.withPackages(ctx, k.sources(), func(got []parts.Unpacked) error { return b.buildModules(ctx, tmp, got) })
	})
	if err != nil {
		return nil, fmt.Errorf("build modules: %w", err)
	}
	key := keyOf(append(b.userland, k.meta), filepath.Base(modules), startScript, initramfsScript, imageSource)
	dir := filepath.Join(b.cache, "image-"+key)
	err = parts.Once(ctx, dir, b.logf, func(tmp string) error {
		b.logf("making the machine's root file system, once")
		return k.withPackages(ctx, k.image(), func(got []parts.Unpacked) error { return b.buildImage(ctx, tmp, got[0], modules) })
	})
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	return &image{Version: k.Version, Kernel: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd"),
		Root: filepath.Join(dir, "root.img")}, nil
}

// buildModules builds the modules in dir. got are the packages of kernel.sources.
func (b *builder) buildModules(ctx context.Context, dir string, got []parts.Unpacked) error {
	headers, common, kbuild, source := got[0], got[1], got[2], got[3]
	archive, err := filepath.Glob(source.Path("usr/src/*.tar.xz"))
	if err != nil || len(archive) != 1 {
		return fmt.Errorf("package %s has %d source archives: %w", source, len(archive), err)
	}
	return run(ctx, "sh", "-c", modulesScript, "modules.sh", dir, archive[0], headers.Path("usr/src/"+headers.Name),
		common.Path("usr/src/"+common.Name), kbuild.Path("usr/lib/"+kbuild.Name))
}

// machineModules are the modules that the machine can load; those that they depend on come with them.
const machineModules = `virtio_blk ext4 crc32c_generic 9p 9pnet_virtio igb igbvf e1000 virtio_net veth bridge tun vhost_net e1000e nfnetlink xfrm_user crc32_generic
	vhost_vdpa virtio_vdpa vduse rdma_cm rdma_ucm ib_uverbs ib_umad rdma_rxe uio_pci_generic overlay
	vfio_pci vfio_iommu_type1 iommufd vdpa_sim_net vp_vdpa`

// debianVFIO are Debian's files of modules that the machine replaces by built ones, in the order of insmod. They are in
// debianVFIODir of the machine.
const (
	debianVFIO    = "vfio vfio_iommu_type1 pci/vfio-pci-core pci/vfio-pci"
	debianVFIODir = "/usr/lib/vfio/"
)

// rootModules are those that the root file system is mounted with.
const rootModules = "virtio_blk crc32c_generic ext4"

// buildImage copies the kernel, and makes the initial file system and the root file system, in dir.
func (b *builder) buildImage(ctx context.Context, dir string, kernel parts.Unpacked, built string) error {
	root := filepath.Join(dir, "root")
	defer os.RemoveAll(root)
	if err := b.layOutPrograms(ctx, root); err != nil {
		return err
	}
	modules := filepath.Join("usr/lib/modules", b.kernel.Version)
	order, err := b.layOutModules(ctx, root, modules, kernel, built)
	if err != nil {
		return err
	}
	if err := b.writeInitramfs(filepath.Join(dir, "initrd"), filepath.Join(root, modules), order); err != nil {
		return err
	}
	if err := run(ctx, "ldconfig", "-X", "-r", root); err != nil {
		return err
	}
	if err := run(ctx, "cp", kernel.Path("boot/vmlinuz-"+b.kernel.Version), filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	return run(ctx, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", root, filepath.Join(dir, "root.img"), "3G")
}

// layOutPrograms copies the packages and writes the files that their maintainer scripts would create.
func (b *builder) layOutPrograms(ctx context.Context, root string) error {
	for _, dir := range strings.Fields("dev proc sys run tmp root share etc opt var/lib usr/bin usr/sbin usr/lib usr/lib64") {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	for _, p := range b.userland {
		entries, err := os.ReadDir(p.Dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			// The slash makes cp follow the links of the merged /usr.
			if err := run(ctx, "cp", "-a", "--no-target-directory", p.Path(e.Name()), filepath.Join(root, e.Name())+"/"); err != nil {
				return err
			}
		}
	}
	// Debian's rules of udev rename network interfaces.
	for _, dir := range strings.Fields("usr/share/doc usr/share/man usr/share/locale usr/share/lintian usr/lib/udev/rules.d") {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	if err := linkApplets(ctx, root); err != nil {
		return err
	}
	// The kernel runs /sbin/modprobe.
	for link, target := range map[string]string{"var/run": "/run", "usr/sbin/modprobe": "../bin/busybox"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"etc/group":  "root:x:0:\nnogroup:x:65534:\n", "etc/hosts": "127.0.0.1 localhost\n", "etc/resolv.conf": "",
		"etc/inittab": "::sysinit:/etc/start\n", "etc/start": startScript,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// linkApplets links busybox's commands, except those that a package has.
func linkApplets(ctx context.Context, root string) error {
	busybox := filepath.Join(root, "usr/bin/busybox")
	list, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(list)) {
		if _, err := os.Lstat(filepath.Join(root, "usr/sbin", name)); err == nil {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(root, "usr/bin", name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// layOutModules copies the kernel's modules that the machine needs and the built ones. It returns the files that the
// root file system needs, in the order of insmod.
func (b *builder) layOutModules(ctx context.Context, root, modules string, kernel parts.Unpacked, built string) (order []string, err error) {
	all := root + ".modules"
	defer os.RemoveAll(all)
	depmod := func(base string) error {
		cmd := exec.CommandContext(ctx, b.kmod.Path("bin/kmod"), "-b", base, b.kernel.Version)
		cmd.Args[0] = "depmod"
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("depmod: %w\n%s", err, out)
		}
		return nil
	}
	tree := filepath.Join(all, "lib/modules", b.kernel.Version)
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return nil, err
	}
	if err := run(ctx, "cp", "-a", kernel.Path("lib/modules/"+b.kernel.Version)+"/.", tree); err != nil {
		return nil, err
	}
	if err := run(ctx, "cp", "-a", built, filepath.Join(tree, "updates")); err != nil {
		return nil, err
	}
	if err := depmod(all); err != nil {
		return nil, err
	}
	copyModule := func(from, to string) error {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		// The machine loads plain modules faster.
		return run(ctx, "sh", "-c", `case $1 in *.xz) xz -dc "$1";; *) strip --strip-debug -o /dev/stdout "$1";; esac >"$2"`, "sh", from, to)
	}
	for _, name := range strings.Fields(debianVFIO) {
		from := filepath.Join(tree, "kernel/drivers/vfio", name+".ko.xz")
		if err := copyModule(from, filepath.Join(root, debianVFIODir, filepath.Base(name)+".ko")); err != nil {
			return nil, err
		}
	}
	deps, err := readDependencies(filepath.Join(tree, "modules.dep"))
	if err != nil {
		return nil, err
	}
	for _, file := range deps.with(machineModules) {
		if err := copyModule(filepath.Join(tree, file), filepath.Join(root, modules, strings.TrimSuffix(file, ".xz"))); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := run(ctx, "cp", filepath.Join(tree, name), filepath.Join(root, modules, name)); err != nil {
			return nil, err
		}
	}
	for _, file := range deps.with(rootModules) {
		order = append(order, strings.TrimSuffix(file, ".xz"))
	}
	return order, depmod(root)
}

// dependencies has the file of each module, and the files that it depends on.
type dependencies map[string][]string

func readDependencies(file string) (dependencies, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	deps := dependencies{}
	for line := range strings.Lines(string(data)) {
		name, needed, _ := strings.Cut(strings.TrimSpace(line), ":")
		base, _, _ := strings.Cut(filepath.Base(name), ".")
		deps[strings.ReplaceAll(base, "-", "_")] = append([]string{name}, strings.Fields(needed)...)
	}
	return deps, nil
}

// with returns the files of modules after the files that they depend on, each once.
func (d dependencies) with(names string) (files []string) {
	seen := map[string]bool{}
	for _, name := range strings.Fields(names) {
		list := d[name]
		// depmod lists the file that must be loaded first at the end.
		for i := len(list) - 1; i >= 0; i-- {
			if !seen[list[i]] {
				seen[list[i]] = true
				files = append(files, list[i])
			}
		}
	}
	return files
}

// writeInitramfs writes the initial file system: busybox and the modules that mount the root file system.
func (b *builder) writeInitramfs(file, modules string, order []string) error {
	w := &cpio{}
	for _, dir := range []string{"bin", "dev", "modules", "root"} {
		w.add(dir, 0o040755, nil)
	}
	var names []string
	for _, rel := range order {
		data, err := os.ReadFile(filepath.Join(modules, rel))
		if err != nil {
			return err
		}
		names = append(names, filepath.Base(rel))
		w.add("modules/"+filepath.Base(rel), 0o100644, data)
	}
	busybox, err := os.ReadFile(filepath.Join(modules, "../../../bin/busybox"))
	if err != nil {
		return err
	}
	w.add("modules/order", 0o100644, []byte(strings.Join(names, "\n")+"\n"))
	w.add("bin/busybox", 0o100755, busybox)
	w.add("init", 0o100755, []byte(initramfsScript))
	w.add("TRAILER!!!", 0, nil)
	return os.WriteFile(file, w.data.Bytes(), 0o644)
}

// cpio is an archive in the format that the kernel unpacks ("newc").
type cpio struct {
	data  bytes.Buffer
	inode int
}

func (c *cpio) add(name string, mode int, data []byte) {
	c.inode++
	fmt.Fprintf(&c.data, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", c.inode, mode, 0, 0, 1, 0, len(data),
		0, 0, 0, 0, len(name)+1, 0)
	c.data.WriteString(name + "\x00")
	c.align()
	c.data.Write(data)
	c.align()
}

func (c *cpio) align() {
	for c.data.Len()%4 != 0 {
		c.data.WriteByte(0)
	}
}
