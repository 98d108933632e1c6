// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// With cgroup version 2, BPF programs decide on every use of a device. The runtime generates and
// attaches one. If several are attached, all of them must allow an access, so attaching another
// program cannot grant anything. Jackfield therefore reads the attached program from the kernel,
// prepends instructions that allow its devices, and replaces the program with the result. That
// works for programs of any runtime.
//
// opencontainers/cgroups can only attach a program that it generated from the complete list of
// rules. Each runtime adds rules to that list that the container's configuration does not contain.

// crunSubgroup is the cgroup in a container's systemd scope in which crun runs the container.
const crunSubgroup = "container"

// prependToAll prepends rules to the device programs of a container's cgroup. Every program between
// the root and the cgroup must allow an access. Under systemd, crun's container is in a cgroup
// below its scope, and systemd attaches a program to the scope. Cgroups above the scope contain
// other processes and stay unchanged.
func prependToAll(dir string, rules []rule) error {
	err := prependRules(dir, rules)
	if scope := filepath.Dir(dir); err == nil && filepath.Base(dir) == crunSubgroup &&
		strings.HasSuffix(scope, ".scope") {
		err = prependRules(scope, rules)
	}
	return err
}

// prependRules prepends rules to each device program attached to the cgroup dir. A cgroup without
// such a program does not restrict devices.
func prependRules(dir string, rules []rule) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	attached, err := link.QueryPrograms(link.QueryOptions{Target: fd, Attach: ebpf.AttachCGroupDevice})
	if err != nil {
		return fmt.Errorf("%s: list the device programs: %w", dir, err)
	}
	prefix := allowInstructions(rules)
	for _, p := range attached.Programs {
		if err := prependToProgram(fd, p.ID, prefix); err != nil {
			return fmt.Errorf("%s: allow %v in device program %d: %w", dir, rules, p.ID, err)
		}
	}
	return nil
}

// prependToProgram puts instructions before those of a cgroup's device program, so that they allow more devices and
// the runtime's own rules still decide about all others. It does nothing if the program has them already.
func prependToProgram(cgroup int, id ebpf.ProgramID, prefix asm.Instructions) error {
	old, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	defer old.Close()
	code, err := readInstructions(old)
	if err != nil {
		return fmt.Errorf("read the instructions: %w", err)
	}
	if hasPrefix(code, prefix) {
		return nil
	}
	changed, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "jackfield", Type: ebpf.CGroupDevice, License: "Apache",
		Instructions: append(prefix[:len(prefix):len(prefix)], code...)})
	if err != nil {
		return fmt.Errorf("load the changed program: %w", err)
	}
	defer changed.Close()
	if err := replaceProgram(cgroup, old, changed); err != nil {
		return fmt.Errorf("replace it by the changed program: %w", err)
	}
	return nil
}

// readInstructions reads the instructions of a loaded program, which the kernel shows only to a privileged process.
func readInstructions(p *ebpf.Program) (asm.Instructions, error) {
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	return info.Instructions()
}

// hasPrefix reports whether code begins with prefix. It prevents a second prepend; the verifier
// does not rewrite the instructions of device programs.
func hasPrefix(code, prefix asm.Instructions) bool {
	return len(code) >= len(prefix) && slices.EqualFunc(code[:len(prefix)], prefix, func(a, b asm.Instruction) bool {
		return a.OpCode == b.OpCode && a.Dst == b.Dst && a.Src == b.Src && a.Offset == b.Offset &&
			a.Constant == b.Constant
	})
}

// replaceProgram replaces an attached program with another in one step. The kernel returns EPERM
// unless the flags equal the flags of the first attachment.
func replaceProgram(cgroup int, old, changed *ebpf.Program) error {
	opts := link.RawAttachProgramOptions{Target: cgroup, Program: changed, Attach: ebpf.AttachCGroupDevice}
	multi := opts
	multi.Flags, multi.Anchor = unix.BPF_F_ALLOW_MULTI, link.ReplaceProgram(old)
	err := link.RawAttachProgram(multi)
	for _, opts.Flags = range []uint32{unix.BPF_F_ALLOW_OVERRIDE, 0} {
		if !errors.Is(err, unix.EPERM) {
			return err
		}
		err = link.RawAttachProgram(opts)
	}
	return err
}

// Values of struct bpf_cgroup_dev_ctx, linux/bpf.h. The lower half of its first word is the device
// type, the upper half the access.
const (
	ctxType, ctxMajor, ctxMinor   = 0, 4, 8 // offsets
	typeMask, accessShift         = 0xffff, 16
	devBlock, devChar             = 1, 2
	accessMknod, accessR, accessW = 1, 2, 4
	anyAccess                     = accessMknod | accessR | accessW
)

// allowInstructions returns instructions that allow the accesses in the rules. Any other access
// continues after the last instruction, in the original program.
func allowInstructions(rules []rule) asm.Instructions {
	var code asm.Instructions
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
		block := asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, ctxType, asm.Word),
			asm.Mov.Reg32(asm.R3, asm.R2),
			asm.And.Imm32(asm.R2, typeMask),
			asm.JNE.Imm32(asm.R2, typ, ""),
			asm.RSh.Imm32(asm.R3, accessShift),
			asm.And.Imm32(asm.R3, anyAccess&^granted),
			asm.JNE.Imm32(asm.R3, 0, ""),
			asm.LoadMem(asm.R2, asm.R1, ctxMajor, asm.Word),
			asm.JNE.Imm32(asm.R2, int32(r.major), ""),
			asm.LoadMem(asm.R2, asm.R1, ctxMinor, asm.Word),
			asm.JNE.Imm32(asm.R2, int32(r.minor), ""),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return(),
		}
		for i := range block {
			if block[i].OpCode.JumpOp() == asm.JNE {
				block[i].Offset = int16(len(block) - i - 1)
			}
		}
		code = append(code, block...)
	}
	return code
}
