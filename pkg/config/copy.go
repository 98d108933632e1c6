// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"path"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// DefaultCopyPath is where a daemon keeps a copy of the last configuration file that was
// in force. It is in the default state directory, wherever the file puts the state: the
// copy is for a file that cannot be read.
const DefaultCopyPath = "/run/jackfield/last-good-config.yaml"

// copyHeader begins the first line of a copy. The path of the file that was copied
// follows, quoted; the file follows on the next lines.
const copyHeader = "# jackfield-nri: the last good configuration of "

// ReadOwned reads the configuration file as [LoadOwned] does, and does not parse it.
func ReadOwned(host hostfs.Root, file string) ([]byte, error) {
	data, err := read(host, file, true)
	if err != nil {
		return nil, fmt.Errorf("read configuration %q: %w", file, err)
	}
	return data, nil
}

// WriteCopy replaces the copy by that of data, which was read from file. Only the
// process's own user can read the copy.
func WriteCopy(host hostfs.Root, at, file string, data []byte) error {
	dir, err := host.MakeDir(path.Dir(at), 0o755)
	if err != nil {
		return fmt.Errorf("copy configuration %q to %q: %w", file, at, err)
	}
	defer dir.Close()
	content := append([]byte(copyHeader+strconv.Quote(file)+"\n"), data...)
	if err := hostfs.ReplaceAt(int(dir.Fd()), path.Base(at), content, hostfs.Own(0o600)); err != nil {
		return fmt.Errorf("copy configuration %q to %q: %w", file, at, err)
	}
	return nil
}

// LoadCopy reads the copy of a file. A copy of another file is errdefs.ErrNotFound, as is
// a missing one. Other faults are those of [LoadOwned].
func LoadCopy(host hostfs.Root, at, file string) (*Config, error) {
	data, err := host.ReadFileIf(at, MaxSize+maxCopyHeader, func(st *unix.Stat_t) error { return checkOwned(st, true) })
	if err != nil {
		return nil, fmt.Errorf("read the last good configuration %q: %w", at, err)
	}
	header, rest, _ := bytes.Cut(data, []byte("\n"))
	if string(header) != copyHeader+strconv.Quote(file) {
		return nil, fmt.Errorf("read the last good configuration %q: it is not that of %q: %w", at, file, errdefs.ErrNotFound)
	}
	return Parse(rest, file)
}

// maxCopyHeader bounds the first line of a copy, in bytes.
const maxCopyHeader = 16 << 10

// RemoveCopy removes the copy, whichever file it is of. A missing one is no error.
func RemoveCopy(host hostfs.Root, at string) error {
	dir, err := host.Open(path.Dir(at), unix.O_RDONLY|unix.O_DIRECTORY)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the last good configuration %q: %w", at, err)
	}
	defer dir.Close()
	if err := unix.Unlinkat(int(dir.Fd()), path.Base(at), 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove the last good configuration %q: %w", at, err)
	}
	return nil
}
