// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// maxLimits bounds a /proc/PID/limits, in bytes.
const maxLimits = 8 << 10

// Memlock returns the limit of locked memory of a process, RLIMIT_MEMLOCK, as it is now. math.MaxUint64 is unlimited.
// The process must be in a control group whose path contains group: otherwise the process has ended, or this process
// sees another PID namespace.
func (r Root) Memlock(pid int, group string) (soft, hard uint64, err error) {
	dir := path.Join("/proc", strconv.Itoa(pid))
	limits, err := r.ReadFile(path.Join(dir, "limits"), maxLimits)
	cgroup, cgroupErr := r.ReadFile(path.Join(dir, "cgroup"), maxLimits)
	if err := errors.Join(err, cgroupErr); err != nil {
		return 0, 0, err
	}
	if group == "" || !strings.Contains(string(cgroup), group) {
		return 0, 0, fmt.Errorf("process %d is not in a control group of %q: %w", pid, group, errdefs.ErrNotFound)
	}
	return parseMemlock(string(limits))
}

// parseMemlock reads the line "Max locked memory" of proc_pid_limits(5).
func parseMemlock(limits string) (soft, hard uint64, err error) {
	for line := range strings.Lines(limits) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 {
			continue
		}
		soft, softErr := parseRlimit(fields[0])
		hard, hardErr := parseRlimit(fields[1])
		return soft, hard, errors.Join(softErr, hardErr)
	}
	return 0, 0, fmt.Errorf("no limit of locked memory: %w", errdefs.ErrInvalidArgument)
}

// parseRlimit parses a limit of /proc/PID/limits, in bytes.
func parseRlimit(text string) (uint64, error) {
	if text == "unlimited" {
		return math.MaxUint64, nil
	}
	return strconv.ParseUint(text, 10, 64)
}
