// SPDX-License-Identifier: Apache-2.0

package rootless

import (
	"path"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxPasswd bounds /etc/passwd, in bytes.
const maxPasswd = 4 << 20

// User returns the uid of the user in whose user namespace this process runs. outside and inside are the result of
// hostfs.UserNamespace. ok is false for root of the host, and for root of a container that owns its root file system.
func User(host hostfs.Root, outside hostfs.Outside, inside bool) (uid uint32, ok bool) {
	if !inside {
		return 0, false
	}
	st, err := host.Stat("/")
	return outside.Root, err == nil && st.Uid != 0
}

// ConfigFile returns the path of a user's own configuration, or "". Like in Podman, it takes
// precedence over the system's. The home directory comes from /etc/passwd, not from the
// environment.
func ConfigFile(host hostfs.Root, uid uint32) string {
	text, err := host.ReadFile("/etc/passwd", maxPasswd)
	if err != nil {
		return ""
	}
	home := homeDir(string(text), uid)
	if home == "" {
		return ""
	}
	file := path.Join(home, ".config/jackfield/config.yaml")
	if _, err := host.Stat(file); err != nil {
		return ""
	}
	return file
}

// homeDir returns a user's home directory from passwd(5), or "" for an unknown user or an unusable
// directory.
func homeDir(passwd string, uid uint32) string {
	field := strconv.FormatUint(uint64(uid), 10)
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) == 7 && f[2] == field && path.IsAbs(f[5]) && path.Clean(f[5]) != "/" {
			return path.Clean(f[5])
		}
	}
	return ""
}

// StateDir returns the state directory for a user's containers: the configured one if the user has
// an own configuration, otherwise a directory below the user's runtime directory.
func StateDir(uid uint32, cfg *config.Config) string {
	if own := cfg.File() != "" && cfg.File() != config.DefaultPath; own && cfg.StateDir != config.Default().StateDir {
		return cfg.StateDir
	}
	return path.Join("/run/user", strconv.FormatUint(uint64(uid), 10), "jackfield")
}
