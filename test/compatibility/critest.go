// SPDX-License-Identifier: Apache-2.0

package compatibility

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// critestCount is the number of critest's specs with each result. `make critest` logs it.
type critestCount struct {
	runtime                 node.Generation
	passed, skipped, failed int
}

func critestCounts() []critestCount {
	return []critestCount{
		{node.V1, 96, 30, 11}, {node.V2, 109, 17, 11}, {node.V24, 116, 10, 11}, {node.CRIO, 106, 13, 18},
		{node.CRIOCrun, 106, 13, 18},
	}
}

// CritestCounts returns the table of docs/contributing/test-matrix-compatibility.md with the results of critest.
func CritestCounts() string {
	var out strings.Builder
	out.WriteString("| runtime, with and without Jackfield | pass | skipped | fail |\n|---|---|---|---|\n")
	for _, c := range critestCounts() {
		fmt.Fprintf(&out, "| %s | %d | %d | %d |\n", title(c.runtime), c.passed, c.skipped, c.failed)
	}
	return out.String()
}

// critestFailure is a reason why runtimes fail specs of critest without Jackfield.
type critestFailure struct {
	// specs are parts of the specs' full texts.
	specs []string
	// runtimes; nil: all.
	runtimes []node.Generation
	reason   string
}

func critestFailures() []critestFailure {
	crio := []node.Generation{node.CRIO, node.CRIOCrun}
	return []critestFailure{
		{specs: []string{"public image with digest should be pulled"}, reason: "only the original image has the digest"},
		{specs: []string{"NoNewPrivs"}, reason: "the registry of the test has no image `nonewprivs`"},
		{specs: []string{"execSync with timeout"}, reason: "the image of the test lacks `pgrep`"},
		{specs: []string{"Privileged is true", "adding capability"},
			reason: "the image of the test lacks `brctl`; CRI-O with crun also cannot set the capabilities"},
		{specs: []string{"MaskedPaths"},
			reason: "a masked program is a symbolic link to busybox in the image of the test, so `sh` is masked, too"},
		{specs: []string{"port mapping with host port"}, reason: "the network of the test has no plugin `portmap`"},
		{specs: []string{"seccomp localhost profile", "seccomp default", "seccomp profile that blocks setting hostname"},
			reason: "runc and CRI-O of the tests are built without seccomp"},
		{specs: []string{"Mount Propagation", "blocks setting hostname when privileged", "adding ALL capabilities"},
			runtimes: crio, reason: "CRI-O grants each capability of the kernel, and root of the test machine lacks some"},
		{specs: []string{"metrics descriptors", "pod sandbox metrics"}, runtimes: crio,
			reason: "CRI-O reports only the metrics that its configuration names"},
	}
}

// CritestFailure returns the reason why a runtime fails a spec of critest without Jackfield, or "".
func CritestFailure(g node.Generation, spec string) string {
	for _, f := range critestFailures() {
		matches := func(part string) bool { return strings.Contains(spec, part) }
		if slices.ContainsFunc(f.specs, matches) && (f.runtimes == nil || slices.Contains(f.runtimes, g)) {
			return f.reason
		}
	}
	return ""
}

// CritestFailures returns the table of docs/contributing/test-matrix-compatibility.md about critest.
func CritestFailures() string {
	var out strings.Builder
	out.WriteString("| specs of critest that fail | runtimes | reason |\n|---|---|---|\n")
	for _, f := range critestFailures() {
		runtimes := []string{"all"}
		if f.runtimes != nil {
			runtimes = nil
		}
		for _, g := range f.runtimes {
			runtimes = append(runtimes, title(g))
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", strings.Join(f.specs, "; "), strings.Join(runtimes, "; "), f.reason)
	}
	return out.String()
}

// title returns a runtime's title in the tables.
func title(g node.Generation) string {
	i := slices.IndexFunc(Columns(), func(c Column) bool { return c.Runtime == g })
	return Columns()[i].Title
}
