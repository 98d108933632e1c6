// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/trust"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// MaxSize is the size of the largest configuration file that is read, in bytes.
const MaxSize = 1 << 20

// Options change how a configuration file is read.
type Options struct {
	// RequireOwner refuses a file of a user other than root and this process's user. Daemons set it:
	// they do what the file says for all users.
	RequireOwner bool
}

// Load reads and parses a configuration file. A missing file is errdefs.ErrNotFound. A file that a user
// other than its owner can write is errdefs.ErrPermissionDenied, since such a user could grant
// devices. So is a file that a group other than root's or this process's own can write. For
// other errors see [Parse].
func Load(host hostfs.Root, path string, opts Options) (*Config, error) {
	data, err := host.ReadFileIf(path, MaxSize, checkTrust(path, opts))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(data, path)
}

// LoadOrDefault loads the file that a command line names, wherever the host root is. Without a file it
// loads DefaultPath below the host root, or returns [Default] if that does not exist.
func LoadOrDefault(host hostfs.Root, file string, opts Options) (*Config, error) {
	root, path, err := Locate(host, file)
	if err != nil {
		return nil, err
	}
	c, err := Load(root, path, opts)
	if file == "" && errdefs.IsNotFound(err) {
		return Default(), nil
	}
	return c, err
}

// Locate returns the root and path of the file that LoadOrDefault loads.
func Locate(host hostfs.Root, file string) (root hostfs.Root, path string, err error) {
	if file == "" {
		return host, DefaultPath, nil
	}
	path, err = filepath.Abs(file)
	return hostfs.Host(), path, err
}

// checkTrust returns a check of a file's owner and mode. ReadFileIf itself refuses files that are not
// regular.
func checkTrust(path string, opts Options) func(*unix.Stat_t) error {
	return func(st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		if fault := trust.Check(path, st, trust.Options{AnyOwner: !opts.RequireOwner, OwnGroup: true}); fault != nil {
			return fault
		}
		return nil
	}
}
