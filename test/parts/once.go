// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"os"
	"path/filepath"
)

// Once calls fill to fill the directory dir, unless dir exists. Another process that needs dir waits meanwhile. fill
// gets a temporary directory beside dir, which becomes dir if fill succeeds.
func Once(ctx context.Context, dir string, logf func(string, ...any), fill func(tmp string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	// Tests of several packages run at the same time. Without a lock, each would fill a directory.
	unlock, err := lock(ctx, filepath.Join(parent, ".lock"), logf)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}
