// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
)

// accelEnv selects the accelerator of QEMU, kvm or tcg.
const accelEnv = "JACKFIELD_VM_ACCEL"

// bootLimits is how long a boot may take with an accelerator. It takes seconds with KVM, and up to a minute without on a
// busy machine.
var bootLimits = map[string]time.Duration{"kvm": time.Minute, "tcg": 5 * time.Minute}

// machine is a machine that can be started.
type machine struct {
	cache string
	logf  func(string, ...any)
	image *image
	qemu  string
	bios  string
	// data are QEMU's directories of firmware, libraries those of its shared libraries.
	data, libraries []string
}

// prepare fetches and builds the machine's parts, unless the cache has them.
func prepare(ctx context.Context, logf func(string, ...any)) (*machine, error) {
	store, err := parts.Open()
	if err != nil {
		return nil, err
	}
	store.Logf = logf
	cache := filepath.Join(filepath.Dir(store.Dir), "vm")
	emulator, err := store.Ensure(ctx, emulatorPackages()...)
	if err != nil {
		return nil, err
	}
	kernel, err := findKernel(ctx, store)
	if err != nil {
		return nil, err
	}
	userland, err := store.Ensure(ctx, userlandPackages()...)
	if err != nil {
		return nil, err
	}
	kmod, err := store.Get(ctx, parts.Package{Suite: "bookworm", Name: "kmod"})
	if err != nil {
		return nil, err
	}
	b := &builder{cache: cache, logf: logf, kernel: kernel, userland: userland, kmod: kmod}
	m := &machine{cache: cache, logf: logf}
	if m.image, err = b.build(ctx); err != nil {
		return nil, err
	}
	for _, p := range emulator {
		for _, rel := range []string{"usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"} {
			if _, err := os.Stat(p.Path(rel)); err == nil {
				m.libraries = append(m.libraries, p.Path(rel))
			}
		}
		switch p.Name {
		case "qemu-system-x86":
			m.qemu = p.Path("usr/bin/qemu-system-x86_64")
		case "qemu-system-data":
			m.data = append(m.data, p.Path("usr/share/qemu"))
		case "seabios":
			m.data = append(m.data, p.Path("usr/share/seabios"))
			m.bios = p.Path("usr/share/seabios/bios-256k.bin")
		case "ipxe-qemu":
			m.data = append(m.data, p.Path("usr/lib/ipxe/qemu"))
		}
	}
	return m, nil
}

// accelerator returns kvm if this process can create a virtual machine for which the processor has instructions, and tcg
// otherwise.
func accelerator() string {
	if a := os.Getenv(accelEnv); a != "" {
		return a
	}
	const createVM = 0xae01 // KVM_CREATE_VM
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	defer f.Close()
	fd, err := unix.IoctlRetInt(int(f.Fd()), createVM)
	if err != nil {
		return "tcg"
	}
	unix.Close(fd)
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !regexp.MustCompile(`(?m)^flags\s*:.* (vmx|svm)( |$)`).Match(cpus) {
		return "tcg"
	}
	return "kvm"
}

// session is a run of a machine.
type session struct {
	// Programs are the host's files that the machine has in /share/bin, by name.
	Programs map[string]string
	// Script is run by the machine's shell as root. The machine ends with it.
	Script string
	// Input is the file /share/input.
	Input []byte
	// Console connects the script to the terminal by /dev/hvc0. Otherwise, its output is that of this process.
	Console bool
}

// run runs the machine and returns the exit status of the script. After a failed boot it boots once more, without KVM: KVM
// may lack what the machine needs, and QEMU 10.0 sometimes aborts on a busy host (iotlb_to_section).
func (m *machine) run(ctx context.Context, s session) (int, error) {
	accel := accelerator()
	code, err := m.runWith(ctx, s, accel)
	if errors.Is(err, errNoBoot) && (accel == "tcg" || os.Getenv(accelEnv) == "") && ctx.Err() == nil {
		m.logf("%v; starting it again without KVM", err)
		return m.runWith(ctx, s, "tcg")
	}
	return code, err
}

var errNoBoot = fmt.Errorf("the machine has not started: %w", errdefs.ErrUnavailable)

func (m *machine) runWith(ctx context.Context, s session, accel string) (code int, err error) {
	share, err := m.share(s)
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(share)

	// The kernel sends the parent-death signal when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, m.qemu, m.arguments(s, share, accel)...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(m.libraries, ":"))
	// QEMU's warnings are of interest if it fails.
	log, err := os.Create(filepath.Join(share, "qemu.log"))
	if err != nil {
		return 1, err
	}
	defer log.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, log
	if !s.Console {
		// QEMU disconnects the machine's port when its standard input ends.
		open, end, err := os.Pipe()
		if err != nil {
			return 1, err
		}
		defer end.Close()
		defer open.Close()
		cmd.Stdin = open
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	m.logf("starting Linux %s with %s", m.image.Version, accel)
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start QEMU: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	limit := time.NewTimer(bootLimits[accel])
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	booted := false
	for {
		select {
		case err := <-ended:
			return m.result(ctx, share, booted, err)
		case <-limit.C:
			if !booted {
				_ = cmd.Process.Kill()
			}
		case <-tick.C:
			if _, err := os.Stat(filepath.Join(share, "started")); err == nil {
				m.logf("the machine has booted in %s", time.Since(started).Round(100*time.Millisecond))
				booted = true
				tick.Stop()
			}
		}
	}
}

// result returns the exit status of the script after QEMU has ended.
func (m *machine) result(ctx context.Context, share string, booted bool, err error) (int, error) {
	if ctx.Err() != nil {
		return 1, context.Cause(ctx)
	}
	status, rerr := os.ReadFile(filepath.Join(share, "status"))
	if rerr == nil {
		return strconv.Atoi(strings.TrimSpace(string(status)))
	}
	log, lerr := os.ReadFile(filepath.Join(share, "qemu.log"))
	console, cerr := os.ReadFile(filepath.Join(share, "console.log"))
	err = fmt.Errorf("QEMU ended with %v:\n%s\nThe console has:\n%s", errors.Join(err, lerr, cerr), node.Tail(string(log), 30), node.Tail(string(console), 30))
	if !booted {
		err = fmt.Errorf("%w: %w", errNoBoot, err)
	}
	return 1, err
}

// share makes the directory that the machine has as /share.
func (m *machine) share(s session) (string, error) {
	m.removeStale()
	dir, err := os.MkdirTemp(m.cache, "run-")
	if err != nil {
		return "", err
	}
	err = os.Mkdir(filepath.Join(dir, "bin"), 0o755)
	for name, file := range s.Programs {
		to := filepath.Join(dir, "bin", name)
		// Another checkout may build the program again, which does not change a linked file.
		if err == nil && os.Link(file, to) != nil {
			err = run(context.Background(), "cp", file, to)
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "run"), []byte(s.Script), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "input"), s.Input, 0o644)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// removeStale removes directories of processes that were killed.
func (m *machine) removeStale() {
	dirs, _ := filepath.Glob(filepath.Join(m.cache, "run-*"))
	for _, dir := range dirs {
		if fi, err := os.Stat(dir); err == nil && time.Since(fi.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(dir)
		}
	}
}

// arguments returns QEMU's arguments. The functions of two igb cards, 0000:01:00.0 and 0000:02:00.0, share one network,
// and 0000:03:00.0 and 0000:04:00.0, which are virtio-net, share another. Two e1000 are behind a bridge for
// conventional PCI, which puts them into one IOMMU group. The IOMMU does not translate the addresses of an e1000e.
func (m *machine) arguments(s session, share, accel string) []string {
	args := strings.Fields(`-machine q35,kernel-irqchip=split -smp 2 -m 3G
		-display none -no-reboot -nodefaults -monitor none
		-device intel-iommu,intremap=on,caching-mode=on
		-device virtio-blk-pci,bus=pcie.0,drive=root,romfile=
		-device pcie-root-port,id=rp1,chassis=1,slot=1,bus=pcie.0,addr=4,pref32-reserve=16M
		-device pcie-root-port,id=rp2,chassis=2,slot=2,bus=pcie.0,addr=5,pref32-reserve=16M
		-device pcie-root-port,id=rp3,chassis=3,slot=3,bus=pcie.0,addr=6
		-device pcie-root-port,id=rp4,chassis=4,slot=4,bus=pcie.0,addr=7
		-device pcie-root-port,id=rp5,chassis=5,slot=5,bus=pcie.0,addr=8
		-netdev hubport,id=h0,hubid=0 -netdev hubport,id=h1,hubid=0
		-netdev hubport,id=h2,hubid=1 -netdev hubport,id=h3,hubid=1
		-device igb,bus=rp1,netdev=h0,mac=52:54:00:00:01:00 -device igb,bus=rp2,netdev=h1,mac=52:54:00:00:02:00
		-device virtio-net-pci,bus=rp3,netdev=h2,mac=52:54:00:00:03:00,disable-legacy=on,iommu_platform=on,ats=on,romfile=
		-device virtio-net-pci,bus=rp4,netdev=h3,mac=52:54:00:00:04:00,disable-legacy=on,iommu_platform=on,ats=on,romfile=
		-device pcie-pci-bridge,id=br1,bus=rp5
		-device e1000,bus=br1,addr=1,romfile= -device e1000,bus=br1,addr=2,romfile=
		-device pxb-pcie,id=pxb,bus_nr=32,bus=pcie.0,addr=9,bypass_iommu=on
		-device pcie-root-port,id=rp6,chassis=6,slot=6,bus=pxb -device e1000e,bus=rp6,romfile=
		-device virtio-serial-pci,bus=pcie.0 -chardev stdio,id=terminal,signal=off`)
	// With KVM in a virtual machine, QEMU fails to set the model-specific register of arch-capabilities.
	cpu := "max,arch-capabilities=off"
	if accel == "tcg" {
		accel, cpu = "tcg,thread=multi,tb-size=512", "max,la57=off"
	}
	port := "virtserialport,chardev=terminal,name=output"
	if s.Console {
		port = "virtconsole,chardev=terminal"
	}
	kernelArgs := "console=ttyS0 quiet intel_iommu=on mitigations=off clocksource=hpet no_timer_check random.trust_cpu=on rdinit=/init panic=-1"
	if isSELinux() {
		kernelArgs += " security=selinux selinux=1"
	}
	args = append(args, "-accel", accel, "-cpu", cpu, "-device", port, "-bios", m.bios,
		"-kernel", m.image.Kernel, "-initrd", m.image.Initrd,
		"-append", kernelArgs,
		"-serial", "file:"+filepath.Join(share, "console.log"),
		"-drive", "file="+m.image.Root+",if=none,id=root,format=raw,snapshot=on",
		"-fsdev", "local,id=share,path="+share+",security_model=none", "-device", "virtio-9p-pci,bus=pcie.0,fsdev=share,mount_tag=share")
	for _, dir := range m.data {
		args = append(args, "-L", dir)
	}
	return args
}

// interruptible returns a context that ends when this process gets a signal to end. The machine ends then, and its
// files are removed.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
}

// Impossible returns the reason why the machine cannot run here.
func Impossible() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the machine is an amd64, and this is %s", runtime.GOARCH)
	}
	if ok, why := parts.Debian(); !ok {
		return errors.New(why)
	}
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("the files of the machine's root file system need root as owner, and this runs as uid %d", uid)
	}
	for _, tool := range strings.Fields("apt-get dpkg-deb gcc make mke2fs ldconfig xz") {
		if _, err := exec.LookPath(tool); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no %s, which the machine is made with: %w", tool, err)
		}
	}
	return nil
}
