// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/parts"
)

// programEnv carries the path of critest into the jail.
const programEnv = "JACKFIELD_CRITEST"

func TestMain(m *testing.M) { e2e.MainWith(m, "critest", prepare, nil) }

// prepare builds critest outside of the jail.
func prepare(ctx context.Context) error {
	cache, err := parts.CacheDir()
	if err != nil {
		return err
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	const module = "sigs.k8s.io/cri-tools"
	bin, _, err := parts.Programs{
		Name: "critest", Dir: filepath.Join(root, "test", "critest"), Module: module,
		Packages: []string{module + "/cmd/critest"}, Test: true,
	}.Build(ctx, cache, func(format string, args ...any) { fmt.Fprintf(os.Stderr, "critest: "+format+"\n", args...) })
	if err != nil {
		return err
	}
	return os.Setenv(programEnv, filepath.Join(bin, "critest.test"))
}
