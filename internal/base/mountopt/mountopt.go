// SPDX-License-Identifier: Apache-2.0

// Package mountopt parses the options of a mount like OCI runtimes (OCI Runtime Specification,
// "Mounts"), so that policy checks exactly the mount that is created.
package mountopt

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Options are the parsed options of a mount. The masks are MOUNT_ATTR_* of mount_setattr(2).
type Options struct {
	Bind      bool // "bind" or "rbind"
	Recursive bool // "rbind": includes the mounts below the source
	IDMap     bool // "idmap" or "ridmap"
	// Set and Clear are attributes of the mount's root. SetAll and ClearAll also apply to all
	// mounts below it.
	Set, Clear, SetAll, ClearAll uint64
	Propagation                  uint64   // MS_PRIVATE, MS_SLAVE, MS_SHARED, MS_UNBINDABLE; 0 if no option sets it
	Data                         []string // all other options, for the file system
}

// Parse parses options. Of two contradicting options, the last one counts.
func Parse(list []string) Options {
	var o Options
	for _, option := range list {
		if a, ok := attributes[option]; ok {
			o.Set, o.Clear = o.Set&^a.clear|a.set, o.Clear&^a.set|a.clear
			continue
		}
		if a, ok := attributes[strings.TrimPrefix(option, "r")]; ok {
			o.SetAll, o.ClearAll = o.SetAll&^a.clear|a.set, o.ClearAll&^a.set|a.clear
			continue
		}
		// These are the options of mount(8) that are not attributes of a mount. An unknown option is data of the file
		// system, which the kernel checks.
		switch option {
		case "", "defaults":
		case "bind":
			o.Bind = true
		case "rbind":
			o.Bind, o.Recursive = true, true
		case "idmap", "ridmap":
			o.IDMap = true
		case "private", "rprivate":
			o.Propagation = unix.MS_PRIVATE
		case "slave", "rslave":
			o.Propagation = unix.MS_SLAVE
		case "shared", "rshared":
			o.Propagation = unix.MS_SHARED
		case "unbindable", "runbindable":
			o.Propagation = unix.MS_UNBINDABLE
		default:
			if !slices.Contains(o.Data, option) {
				o.Data = append(o.Data, option)
			}
		}
	}
	// The atime settings are one field, so setting one clears the others.
	if o.Set&unix.MOUNT_ATTR__ATIME != 0 {
		o.Clear |= unix.MOUNT_ATTR__ATIME
	}
	return o
}

// attributes maps each option to the attributes that it sets and clears.
var attributes = map[string]struct{ set, clear uint64 }{
	"ro":            {unix.MOUNT_ATTR_RDONLY, 0},
	"rw":            {0, unix.MOUNT_ATTR_RDONLY},
	"nosuid":        {unix.MOUNT_ATTR_NOSUID, 0},
	"suid":          {0, unix.MOUNT_ATTR_NOSUID},
	"nodev":         {unix.MOUNT_ATTR_NODEV, 0},
	"dev":           {0, unix.MOUNT_ATTR_NODEV},
	"noexec":        {unix.MOUNT_ATTR_NOEXEC, 0},
	"exec":          {0, unix.MOUNT_ATTR_NOEXEC},
	"noatime":       {unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME},
	"relatime":      {unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
	"atime":         {unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
	"strictatime":   {unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME},
	"norelatime":    {0, 0}, // the kernel's default, relatime, stays
	"nostrictatime": {0, 0},
	"nodiratime":    {unix.MOUNT_ATTR_NODIRATIME, 0},
	"diratime":      {0, unix.MOUNT_ATTR_NODIRATIME},
	"nosymfollow":   {unix.MOUNT_ATTR_NOSYMFOLLOW, 0},
	"symfollow":     {0, unix.MOUNT_ATTR_NOSYMFOLLOW},
}

// IsBind reports whether a mount with this type and these options is a bind mount.
func IsBind(mountType string, options []string) bool {
	return mountType == "bind" || Parse(options).Bind
}

// IsReadOnly reports whether a mount with these options cannot be written. Of ro and rw, the last
// one counts. With an unknown option, or an option that makes the mount writable in another way
// (rrw), the mount counts as writable.
func IsReadOnly(options []string) bool {
	o := Parse(options)
	if o.IDMap || slices.Contains(options, "rrw") {
		return false
	}
	isUnknown := func(option string) bool { return !slices.Contains([]string{"sync", "async", "dirsync"}, option) }
	return o.Set&unix.MOUNT_ATTR_RDONLY != 0 && !slices.ContainsFunc(o.Data, isUnknown)
}
