// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"os"
	"strings"
)

// Mount is a line of mountinfo, proc_pid_mountinfo(5).
type Mount struct {
	Root   string // what of the file system is mounted
	Point  string // where, in the namespace of the process
	Shared bool   // what is mounted below it appears in the others of its peer group
	FSType string
	Super  []string // options of the file system
}

// Mounts are the mounts that this process sees, in the order in which they were made:
// of several at one point the last is on top.
func Mounts() ([]Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return ParseMounts(string(data)), nil
}

// ParseMounts reads mountinfo. What is no line of it is passed over.
func ParseMounts(mountinfo string) []Mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []Mount
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(kind) < 3 {
			continue
		}
		m := Mount{Root: unescape.Replace(fields[3]), Point: unescape.Replace(fields[4]), FSType: kind[0], Super: strings.Split(kind[2], ",")}
		for _, tag := range fields[6:] {
			m.Shared = m.Shared || strings.HasPrefix(tag, "shared:")
		}
		mounts = append(mounts, m)
	}
	return mounts
}
