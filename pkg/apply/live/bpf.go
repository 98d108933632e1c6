// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Under cgroup version 2 a program of the kernel's BPF machine decides on every use
// of a device. The runtime has attached one that it made of the container's
// configuration, and of several programs all have to agree, so that one more would
// not help. What helps is the runtime's own program with an answer in front: "this
// device, yes". It is read back from the kernel, so that nothing needs to be
// known of how the runtime made it.
//
// opencontainers/cgroups can only attach a program made of the whole list of rules,
// of which each runtime adds some that are written down nowhere.

// instruction is struct bpf_insn, linux/bpf.h.
type instruction struct {
	code byte
	regs byte // destination, low, and source register
	off  int16
	imm  int32
}

const insnSize = 8

// amend puts rules in front of each device program that is attached to the cgroup
// dir. Without one nothing is restricted there.
func amend(dir string, rules []rule) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	ids, flags, err := attached(fd)
	if err != nil {
		return fmt.Errorf("%s: list the device programs: %w", dir, err)
	}
	prefix := answers(rules)
	for _, id := range ids {
		if err := amendOne(fd, id, flags, prefix); err != nil {
			return fmt.Errorf("%s: put %v in front of device program %d: %w", dir, rules, id, err)
		}
	}
	return nil
}

func amendOne(cgroup int, id, flags uint32, prefix []byte) error {
	old, err := programByID(id)
	if err != nil {
		return err
	}
	defer unix.Close(old)
	code, err := instructions(old)
	if err != nil || bytes.HasPrefix(code, prefix) {
		return err
	}
	changed, err := load(append(bytes.Clone(prefix), code...))
	if err != nil {
		return err
	}
	defer unix.Close(changed)
	return replace(cgroup, old, changed, flags)
}

// Registers and constants of the programs, linux/bpf.h and linux/bpf_common.h.
const (
	ldxW    = 0x61 // dst = *(u32 *)(src + off)
	mov32R  = 0xbc // dst = src, 32 bits
	mov64I  = 0xb7
	and32I  = 0x54
	rsh32I  = 0x74
	jneI    = 0x55 // if dst != imm goto pc + off
	jne32I  = 0x56
	exit    = 0x95
	ctx     = 1 // the register that has the question, struct bpf_cgroup_dev_ctx
	devMask = 0xffff

	devBlock, devChar               = 1, 2 // BPF_DEVCG_DEV_*
	accessMknod, accessR, accessW   = 1, 2, 4
	anyAccess                       = accessMknod | accessR | accessW
	typeOffset, majorOff, minorOff  = 0, 4, 8
	blockLen                        = 13 // instructions for one rule
	cgroupDevice                    = 15 // BPF_PROG_TYPE_CGROUP_DEVICE
	attachDevice                    = 6  // BPF_CGROUP_DEVICE
	allowOverride, allowMulti, swap = 1, 2, 4
)

// answers is a program that says yes to what the rules allow, and goes on behind its
// end otherwise.
func answers(rules []rule) []byte {
	var code []byte
	add := func(i instruction) {
		code = append(code, i.code, i.regs)
		code = binary.NativeEndian.AppendUint16(code, uint16(i.off))
		code = binary.NativeEndian.AppendUint32(code, uint32(i.imm))
	}
	for _, r := range rules {
		typ, granted := int32(devChar), int32(0)
		if r.typ == 'b' {
			typ = devBlock
		}
		for access, bit := range map[rune]int32{'r': accessR, 'w': accessW, 'm': accessMknod} {
			if strings.ContainsRune(r.access, access) {
				granted |= bit
			}
		}
		next := func(at int16) int16 { return blockLen - at - 1 } // from instruction at to the next block
		add(instruction{code: ldxW, regs: 2 | ctx<<4, off: typeOffset})
		add(instruction{code: mov32R, regs: 3 | 2<<4})
		add(instruction{code: and32I, regs: 2, imm: devMask})
		add(instruction{code: jne32I, regs: 2, off: next(3), imm: typ})
		add(instruction{code: rsh32I, regs: 3, imm: 16})
		add(instruction{code: and32I, regs: 3, imm: anyAccess &^ granted})
		add(instruction{code: jne32I, regs: 3, off: next(6)})
		add(instruction{code: ldxW, regs: 2 | ctx<<4, off: majorOff})
		add(instruction{code: jne32I, regs: 2, off: next(8), imm: int32(r.major)})
		add(instruction{code: ldxW, regs: 2 | ctx<<4, off: minorOff})
		add(instruction{code: jne32I, regs: 2, off: next(10), imm: int32(r.minor)})
		add(instruction{code: mov64I, regs: 0, imm: 1})
		add(instruction{code: exit})
	}
	return code
}

// bpf is bpf(2).
func bpf[T any](cmd uintptr, attr *T) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR, unix.EAGAIN:
			continue
		}
		return -1, errno
	}
}

// attached lists the programs of a cgroup itself, and how they were attached.
func attached(cgroup int) (ids []uint32, flags uint32, err error) {
	const most = 64 // BPF_CGROUP_MAX_PROGS
	ids = make([]uint32, most)
	attr := struct {
		targetFD, attachType, queryFlags, attachFlags uint32
		ids                                           pointer
		count, _                                      uint32
	}{targetFD: uint32(cgroup), attachType: attachDevice, ids: at(&ids[0]), count: most}
	if _, err := bpf(unix.BPF_PROG_QUERY, &attr); err != nil {
		return nil, 0, err
	}
	return ids[:min(attr.count, most)], attr.attachFlags, nil
}

func programByID(id uint32) (int, error) {
	attr := struct{ id, next, flags uint32 }{id: id}
	return bpf(unix.BPF_PROG_GET_FD_BY_ID, &attr)
}

// instructions reads a program back, struct bpf_prog_info.
func instructions(prog int) ([]byte, error) {
	type info struct {
		_        [5]uint32 // type, ID, tag, length of the machine's own code
		xlateLen uint32
		_        pointer // that code
		xlated   pointer
		_        [24]uint64 // more, which nobody asks for
	}
	query := func(in *info) error {
		attr := struct {
			fd, size uint32
			info     pointer
		}{uint32(prog), uint32(unsafe.Sizeof(*in)), at(in)}
		_, err := bpf(unix.BPF_OBJ_GET_INFO_BY_FD, &attr)
		return err
	}
	var first info
	if err := query(&first); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if first.xlateLen == 0 || first.xlateLen%insnSize != 0 {
		return nil, fmt.Errorf("read it: the kernel does not show its %d bytes: %w", first.xlateLen, errdefs.ErrPermissionDenied)
	}
	code := make([]byte, first.xlateLen)
	second := info{xlateLen: first.xlateLen, xlated: at(&code[0])}
	if err := query(&second); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if second.xlated == nil {
		return nil, fmt.Errorf("read it: the kernel does not show it to this process: %w", errdefs.ErrPermissionDenied)
	}
	return code, nil
}

func load(code []byte) (int, error) {
	license := []byte("Apache\x00")
	attr := struct {
		typ, count                     uint32
		code, license                  pointer
		logLevel, logSize              uint32
		log                            pointer
		kernel, flags                  uint32
		name                           [16]byte
		ifindex, expected, btf, recLen uint32
	}{typ: cgroupDevice, count: uint32(len(code) / insnSize), code: at(&code[0]), license: at(&license[0])}
	copy(attr.name[:15], "jackfield")
	fd, err := bpf(unix.BPF_PROG_LOAD, &attr)
	if err != nil {
		return -1, fmt.Errorf("load the changed one: %w", err)
	}
	return fd, nil
}

// replace attaches a program in the place of another one, in one step.
func replace(cgroup, old, changed int, flags uint32) error {
	attr := struct{ targetFD, progFD, typ, flags, replaceFD uint32 }{uint32(cgroup), uint32(changed), attachDevice, flags, 0}
	if flags&allowMulti != 0 {
		attr.flags = allowMulti | swap
		attr.replaceFD = uint32(old)
	}
	_, err := bpf(unix.BPF_PROG_ATTACH, &attr)
	if err == nil || flags&allowMulti == 0 || !errors.Is(err, unix.EINVAL) {
		return attachError(err)
	}
	// Kernels before 5.6 have no replacing: both for a moment, then the new one.
	attr.flags, attr.replaceFD = allowMulti, 0
	if _, err := bpf(unix.BPF_PROG_ATTACH, &attr); err != nil {
		return attachError(err)
	}
	attr.progFD, attr.flags = uint32(old), 0
	_, err = bpf(unix.BPF_PROG_DETACH, &attr)
	return attachError(err)
}

func attachError(err error) error {
	if err != nil {
		return fmt.Errorf("put the changed one in its place: %w", err)
	}
	return nil
}

// pointer is a pointer of a bpf(2) argument, which has 64 bits on every machine. A
// machine whose own are shorter does not get past this line.
type pointer = unsafe.Pointer

const _ = unsafe.Sizeof(pointer(nil)) - 8

func at[T any](p *T) pointer { return pointer(p) }
