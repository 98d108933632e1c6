// SPDX-License-Identifier: Apache-2.0

package install

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/parts"
)

// checkoutEnv and imageEnv carry the checkout's directory and the image's archive
// into the jail.
const (
	checkoutEnv = "JACKFIELD_CHECKOUT"
	imageEnv    = "JACKFIELD_IMAGE"
)

// ImageName is what the archive's image is called.
const ImageName = "localhost/jackfield/jackfield:devel"

// Main is e2e.Main with the container image, made before the jail.
func Main(m *testing.M) {
	flag.Parse()
	if jail.Outside() && !testing.Short() && jail.Possible() == nil {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "install:", err)
			os.Exit(1)
		}
	}
	e2e.Main(m)
}

func prepare() error {
	cache, err := parts.CacheDir()
	if err != nil {
		return err
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	image := filepath.Join(cache, "bin", "jackfield-image.tar")
	cmd := exec.Command("go", "run", "./deploy/image", "-o", image, "-platforms", "linux/"+runtime.GOARCH)
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
