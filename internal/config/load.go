// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// MaxSize is the maximum size of a configuration file in bytes.
const MaxSize = 1 << 20

// Options change the checks on a configuration file.
type Options struct {
	// RequireOwner rejects a file that belongs to a user other than root and this process's user.
	// Daemons set it, because they act on the file for all users.
	RequireOwner bool
}

// Load reads and parses a configuration file. A missing file is errdefs.ErrNotFound. A file that
// other users can write is errdefs.ErrPermissionDenied, because they could grant themselves
// devices. That includes a file that a group other than root's or this process's own can write. For
// other errors see [Parse].
func Load(host hostfs.Root, path string, opts Options) (*Config, error) {
	data, err := host.ReadFileIf(path, MaxSize, checkTrust(path, opts))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(data, path)
}

// LoadOrDefault loads the file from a command line, which is not below the host root. If file is
// "", it loads DefaultPath below the host root, or returns [Default] if that is missing.
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

// Locate returns root and path of the file that LoadOrDefault loads.
func Locate(host hostfs.Root, file string) (root hostfs.Root, path string, err error) {
	if file == "" {
		return host, DefaultPath, nil
	}
	path, err = filepath.Abs(file)
	return hostfs.Host(), path, err
}

// checkTrust returns a check of a file's owner and mode. ReadFileIf itself rejects files that are
// not regular.
func checkTrust(path string, opts Options) func(*unix.Stat_t) error {
	return func(st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		if fault := trust.Check(path, st, trust.Options{AnyOwner: !opts.RequireOwner,
			UnmappedOwner: true}); fault != nil {
			return fault
		}
		return nil
	}
}

// DefaultCopyPath is the daemon's copy of the last valid configuration file. It is always in the
// default state directory, because it is needed when the file, and with it stateDir, is unreadable.
const DefaultCopyPath = "/run/jackfield/last-good-config.yaml"

// copyHeader begins the first line of a copy. The quoted path of the original follows. The
// remaining lines are the original's content.
const copyHeader = "# jackfield-nri: the last good configuration of "

// WriteCopy replaces the copy with data, which was read from file. Only this process's user can
// read the copy.
func WriteCopy(host hostfs.Root, at, file string, data []byte) error {
	content := append([]byte(copyHeader+strconv.Quote(file)+"\n"), data...)
	if err := host.Replace(at, content, hostfs.Own(0o600)); err != nil {
		return fmt.Errorf("copy configuration %q to %q: %w", file, at, err)
	}
	return nil
}

// LoadCopy loads the copy of a file. A missing copy and a copy of another file are
// errdefs.ErrNotFound. For other errors see [Load] with RequireOwner.
func LoadCopy(host hostfs.Root, at, file string) (*Config, error) {
	data, err := host.ReadFileIf(at, MaxSize+maxCopyHeader, checkTrust(at, Options{RequireOwner: true}))
	if err != nil {
		return nil, fmt.Errorf("read the last good configuration: %w", err)
	}
	header, rest, _ := bytes.Cut(data, []byte("\n"))
	if string(header) != copyHeader+strconv.Quote(file) {
		return nil, fmt.Errorf("read the last good configuration %q: it is a copy of another file, not of %q: %w", at,
			file, errdefs.ErrNotFound)
	}
	return Parse(rest, file)
}

// LoadOrCopy is like Load with RequireOwner, for nodes on which only jackfield-nri has the
// configuration, from a ConfigMap. If the default file is missing, it loads the copy that
// jackfield-nri keeps. The result's File is the loaded path.
func LoadOrCopy(host hostfs.Root, file string) (*Config, error) {
	c, err := Load(host, file, Options{RequireOwner: true})
	if file != DefaultPath || !errdefs.IsNotFound(err) {
		return c, err
	}
	c, copyErr := LoadCopy(host, DefaultCopyPath, file)
	if errdefs.IsNotFound(copyErr) {
		return nil, err
	}
	if copyErr != nil {
		return nil, copyErr
	}
	c.file = DefaultCopyPath + " (the configuration of jackfield-nri)"
	return c, nil
}

// maxCopyHeader bounds the first line of a copy, in bytes.
const maxCopyHeader = 16 << 10

// RemoveCopy removes the copy, regardless of its original. A missing copy is no error.
func RemoveCopy(host hostfs.Root, at string) error {
	if err := host.Remove(at); err != nil {
		return fmt.Errorf("remove the last good configuration %q: %w", at, err)
	}
	return nil
}
