// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	containerdModule = "github.com/containerd/containerd/v2"
	// containerdTags leave out snapshotters that tests do not use.
	containerdTags = "no_btrfs,no_devmapper,no_zfs"
)

// buildContainerd builds V24 from the module proxy, by the versions in the go.mod of
// dir, into a directory of the cache that has their digest in its name: they are
// built once, and what was built stays.
func (k *Kit) buildContainerd(ctx context.Context, dir, cache string, logf func(format string, args ...any)) error {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	found := regexp.MustCompile(regexp.QuoteMeta(containerdModule) + ` v(\S+)`).FindSubmatch(mod)
	if found == nil {
		return fmt.Errorf("build containerd: %s/go.mod does not require %s: %w", dir, containerdModule, errdefs.ErrNotFound)
	}
	version := string(found[1])
	key := sha256.Sum256(append(append(mod, sums...), containerdTags...))
	bin := filepath.Join(cache, fmt.Sprintf("%s-%x", version, key[:6]))
	k.Containerd[V24], k.Versions[V24] = bin, version
	if _, err := os.Stat(bin); err == nil {
		return nil
	}
	logf("building containerd %s", version)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	defer lock.Close()
	// Packages' tests run beside each other, and each would build it.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("build containerd: lock %q: %w", lock.Name(), err)
	}
	if _, err := os.Stat(bin); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	defer os.RemoveAll(tmp)
	args := []string{"build", "-trimpath", "-tags", containerdTags,
		"-ldflags", "-s -w -X " + containerdModule + "/version.Version=" + version, "-o", tmp + "/"}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		args = append(args, containerdModule+"/cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build containerd %s: %w\n%s", version, err, out)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	if err := os.Rename(tmp, bin); err != nil {
		return fmt.Errorf("build containerd: %w", err)
	}
	return nil
}
