// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memlockEnv makes this program run another program, its arguments, for which raising RLIMIT_MEMLOCK
// succeeds.
//
// crun 1.8 raises that limit before it loads a BPF program, which needs CAP_SYS_RESOURCE. Since Linux 5.11,
// cgroups account for the memory of BPF programs and the limit does not apply, so root without the capability
// can load them. A seccomp(2) filter makes the kernel answer this call, and no other, with success and
// without doing anything.
const memlockEnv = "JACKFIELD_HOOK_MEMLOCK"

// asIfRaised returns the wrapper's command line for a command.
func asIfRaised(args []string) ([]string, error) {
	self, err := os.Executable()
	return append([]string{"/usr/bin/env", memlockEnv + "=1", self}, args...), err
}

// runAsIfRaised runs the wrapped command. It returns only with an error.
func runAsIfRaised(args []string) error {
	runtime.LockOSThread()
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if err := os.Unsetenv(memlockEnv); err != nil {
		return err
	}
	const (
		nr       = 0  // of struct seccomp_data: the call's number
		resource = 24 // arguments begin at 16, two words each
		limitLow = 32
		limitHi  = 36
	)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	// The C library implements setrlimit as prlimit64(pid, resource, limit, old).
	filter := []unix.SockFilter{
		load(nr), equal(unix.SYS_PRLIMIT64, 0, 6),
		load(resource), equal(unix.RLIMIT_MEMLOCK, 0, 4),
		load(limitLow), equal(0, 0, 3), // without a limit the call only reads
		load(limitHi), equal(0, 0, 1),
		answer(unix.SECCOMP_RET_ALLOW),
		answer(unix.SECCOMP_RET_ERRNO), // of 0: it succeeded
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return unix.Exec(program, args, os.Environ())
}

// hasCapability reports whether this process has a capability.
func hasCapability(tb testing.TB, capability uint) bool {
	tb.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "CapEff:\t")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return set&(1<<capability) != 0
}
