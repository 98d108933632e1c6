// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is a line of mountinfo, proc_pid_mountinfo(5).
type Mount struct {
	Root   string // directory of the file system that is mounted
	Point  string // mount point, in the mount namespace of the process
	Shared bool   // mounts below it propagate to its peer group
	FSType string
	Super  []string // options of the file system
}

// Mounts returns the mounts that this process sees, in the order of their creation. Of several
// mounts at one point, the last one is on top.
func Mounts() ([]Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return ParseMounts(string(data)), nil
}

// FindMount returns the mount that contains a path of this process, and the mount on the path
// itself, or nil.
func FindMount(path string) (around Mount, on *Mount, err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // the spelling in mountinfo
	}
	mounts, err := Mounts()
	for i := range mounts {
		switch m := &mounts[i]; {
		case m.Point == path:
			on = m // the last one is on top
		case (m.Point == "/" || strings.HasPrefix(path, m.Point+"/")) && len(m.Point) >= len(around.Point):
			around = *m
		}
	}
	return around, on, err
}

// ParseMounts parses mountinfo. It skips invalid lines.
func ParseMounts(mountinfo string) []Mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []Mount
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		kind := strings.Split(strings.TrimSuffix(after, "\n"), " ") // the source, in the middle, can be empty
		if !ok || len(fields) < 6 || len(kind) < 3 || kind[0] == "" {
			continue
		}
		m := Mount{Root: unescape.Replace(fields[3]), Point: unescape.Replace(fields[4]), FSType: kind[0],
			Super: strings.Split(kind[2], ",")}
		m.Shared = slices.ContainsFunc(fields[6:], func(tag string) bool { return strings.HasPrefix(tag, "shared:") })
		mounts = append(mounts, m)
	}
	return mounts
}

// NewFileSystem returns a detached mount of a new file system (mount(8)). options are the file
// system's options, flags and key=value. attributes are MOUNT_ATTR_* of mount_setattr(2).
func NewFileSystem(fsType, source string, options []string, attributes uint64) (tree int, err error) {
	fs, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.EPERM) {
		return -1, fmt.Errorf("mount a file system of type %q: %w: this needs root with CAP_SYS_ADMIN", fsType, err)
	}
	if err != nil {
		return -1, fmt.Errorf("type: invalid value %q: %w", fsType, err)
	}
	defer unix.Close(fs)
	if source != "" {
		if err := unix.FsconfigSetString(fs, "source", source); err != nil {
			return -1, fmt.Errorf("source: invalid value %q: %w", source, err)
		}
	}
	for _, option := range options {
		key, value, valued := strings.Cut(option, "=")
		if valued {
			err = unix.FsconfigSetString(fs, key, value)
		} else {
			err = unix.FsconfigSetFlag(fs, key)
		}
		if err != nil {
			return -1, fmt.Errorf("options: invalid value %q: %w", option, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("create a file system of type %q: %w", fsType, err)
	}
	if tree, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(attributes)); err != nil {
		return -1, fmt.Errorf("mount a file system of type %q: %w", fsType, err)
	}
	return tree, nil
}
