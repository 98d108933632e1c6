// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"path"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/pkg/config"
)

// rootless is the uid of the ordinary user whose containers this process serves. ok
// is false for root of the host, and for root of a container whose files are its
// own: such a one has a system of its own.
func (h *hook) rootless() (uid uint32, ok bool) {
	ns, inside := h.around()
	if !inside {
		return 0, false
	}
	st, err := h.host.Stat("/")
	return ns.Root, err == nil && st.Uid != 0
}

// userConfig is the path of a user's own configuration, which goes before that of the
// system as it does for Podman; "" where there is none. Whose home is where is taken
// from /etc/passwd and not from the environment; a user who is not in there names the
// file by --config.
func (h *hook) userConfig(uid uint32) string {
	text, err := h.host.ReadFile("/etc/passwd", maxInput)
	if err != nil {
		return ""
	}
	home := homeOf(string(text), uid)
	if home == "" {
		return ""
	}
	file := path.Join(home, ".config/jackfield/config.yaml")
	if _, err := h.host.Stat(file); err != nil {
		return ""
	}
	return file
}

// homeOf is a user's home directory, passwd(5); "" for nobody's and for one that is no
// directory of a user's.
func homeOf(passwd string, uid uint32) string {
	want := strconv.FormatUint(uint64(uid), 10)
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) == 7 && f[2] == want && path.IsAbs(f[5]) && path.Clean(f[5]) != "/" {
			return path.Clean(f[5])
		}
	}
	return ""
}

// userState is where a user's containers have their things: what the user's own
// configuration says, or the directory that the system gives every user.
func userState(uid uint32, cfg *config.Config) string {
	if own := cfg.File() != "" && cfg.File() != config.DefaultPath; own && cfg.StateDir != config.Default().StateDir {
		return cfg.StateDir
	}
	return path.Join("/run/user", strconv.FormatUint(uint64(uid), 10), "jackfield")
}
