// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/parts"
)

// BuildSample compiles the sample application of the tenant's kit against the tree's DPDK and returns the program.
// The test is skipped if the machine has no C compiler. In CI it fails.
func (t *Tree) BuildSample(tb testing.TB) string {
	tb.Helper()
	return t.compile(tb, "deploy/kit/dpdk-reflect.c")
}

// BuildTraffic is BuildSample for the program that sends and receives numbered packets.
func (t *Tree) BuildTraffic(tb testing.TB) string {
	tb.Helper()
	return t.compile(tb, "test/e2e/dpdk/testdata/traffic.c")
}

// compile compiles a C file of the checkout.
func (t *Tree) compile(tb testing.TB, source string) string {
	tb.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("no gcc, and CI promises that there is: %v", err)
		}
		tb.Skipf("skipped: %v", err)
	}
	top, err := parts.ModuleRoot(".")
	if err != nil {
		tb.Fatal(err)
	}
	program := filepath.Join(tb.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	// The flags of libdpdk's pkg-config, with the paths of the unpacked packages.
	args := []string{"-O2", "-Wall", "-Wextra", "-Werror", "-include", "rte_config.h", "-o", program,
		"-I", filepath.Join(top, "deploy/kit")}
	if runtime.GOARCH == "amd64" {
		args = append(args, "-march=corei7")
	}
	for _, dir := range load(tb).Headers {
		found, err := filepath.Glob(filepath.Join(dir, "usr/include/*/dpdk"))
		if err != nil {
			tb.Fatal(err)
		}
		for _, d := range append(found, filepath.Join(dir, "usr/include"), filepath.Join(dir, "usr/include/dpdk")) {
			args = append(args, "-isystem", d)
		}
	}
	args = append(args, filepath.Join(top, source), "-L", filepath.Dir(filepath.Dir(t.plugins)),
		"-Wl,--allow-shlib-undefined")
	for _, library := range []string{"eal", "ethdev", "mbuf", "mempool"} {
		args = append(args, "-l:librte_"+library+".so.23")
	}
	if out, err := exec.CommandContext(tb.Context(), "gcc", args...).CombinedOutput(); err != nil {
		tb.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return program
}
