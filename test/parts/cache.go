// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	// CacheEnv names the environment variable that moves the cache folder.
	CacheEnv = "JACKFIELD_CACHE"

	rootModule = "github.com/jackfield/jackfield"
)

// ModuleRoot returns the directory of Jackfield's root module: the nearest
// directory at or above dir whose go.mod declares it.
func ModuleRoot(dir string) (string, error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find module root from %q: %w", dir, err)
	}
	for d := start; ; d = filepath.Dir(d) {
		if declares(filepath.Join(d, "go.mod"), rootModule) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find module root from %q: no go.mod of %s at or above it: %w",
				start, rootModule, errdefs.ErrNotFound)
		}
	}
}

func declares(gomod, module string) bool {
	f, err := os.Open(gomod)
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) == 2 && fields[0] == "module" {
			return fields[1] == module
		}
	}
	return false
}

// CacheDir returns the absolute path of the cache folder: JACKFIELD_CACHE, or
// .cache in the checkout that the working directory is in.
func CacheDir() (string, error) {
	if d := os.Getenv(CacheEnv); d != "" {
		return filepath.Abs(d)
	}
	root, err := ModuleRoot(".")
	if err != nil {
		return "", fmt.Errorf("find the cache folder (set %s to choose one): %w", CacheEnv, err)
	}
	return filepath.Join(root, ".cache"), nil
}

// lock takes the exclusive lock of a file, which it creates if needed, and returns
// a function that releases it. It waits for other processes until ctx is done, and
// logs that once.
func lock(ctx context.Context, path string, logf func(string, ...any)) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("lock %q: the cache belongs to another user; remove it or set %s: %w", path, CacheEnv, err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
		if !told {
			logf("waiting for another process that fills %s", filepath.Dir(path))
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %q: another process holds it: %w", path, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
