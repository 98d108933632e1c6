// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/parts"
)

// checkoutEnv and imageEnv carry the checkout's directory and the image's archive into the jail.
const (
	checkoutEnv = "JACKFIELD_CHECKOUT"
	imageEnv    = "JACKFIELD_IMAGE"
)

// execEnv makes the test binary run this program instead, with only the capabilities of keepEnv, a bit set in
// hexadecimal.
const (
	execEnv = "JACKFIELD_EXEC"
	keepEnv = "JACKFIELD_KEEP_CAPS"
)

// execWithout replaces the process by another program. It returns only with an error. At exec, root gets no
// capability outside of the bounding set.
func execWithout() error {
	goruntime.LockOSThread()
	program := os.Getenv(execEnv)
	keep, err := strconv.ParseUint(os.Getenv(keepEnv), 16, 64)
	if err != nil {
		return err
	}
	for c := uintptr(0); c < 64; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // the kernel has no more capabilities
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return unix.Exec(program, append([]string{program}, os.Args[1:]...), []string{"PATH=" + os.Getenv("PATH")})
}

// ImageName is the name of the archive's image.
const ImageName = "localhost/jackfield/jackfield:devel"

// Main is e2e.Main with the container image, which it builds before the jail.
func Main(m *testing.M) {
	if os.Getenv(execEnv) != "" {
		fmt.Fprintln(os.Stderr, "install:", execWithout())
		os.Exit(1)
	}
	e2e.MainWith(m, "install", prepare, nil)
}

func prepare(ctx context.Context) error {
	cache, err := parts.CacheDir()
	if err != nil {
		return err
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	image := filepath.Join(cache, "bin", "jackfield-image.tar")
	cmd := exec.CommandContext(ctx, "go", "run", "./deploy/image", "-o", image, "-platforms", "linux/"+goruntime.GOARCH)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make image: %w\n%s", err, out)
	}
	return setenv(map[string]string{checkoutEnv: root, imageEnv: image})
}

func setenv(vars map[string]string) error {
	for k, v := range vars {
		if err := os.Setenv(k, v); err != nil {
			return err
		}
	}
	return nil
}
