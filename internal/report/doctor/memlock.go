// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// pinningNodes are the directories and names of the device nodes whose programs pin memory.
var pinningNodes = []struct{ dir, prefix string }{
	{"/dev/vfio", ""}, {"/dev/vfio/devices", "vfio"}, {"/dev", "vhost-vdpa-"}, {"/dev/infiniband", "uverbs"},
}

// checkMemlock reports the rules that grant devices whose programs pin memory, and that do not raise the limit of
// locked memory. Such a program fails in the container with the runtime's limit, and its error rarely says why.
func checkMemlock(_ context.Context, n *node) (found findings) {
	const maxEntries = 4096
	var nodes []string
	for _, p := range pinningNodes {
		names, _ := n.Host.ReadDir(p.dir, maxEntries)
		for _, name := range names {
			digits := strings.TrimPrefix(strings.TrimPrefix(name, p.prefix), "noiommu-")
			if strings.HasPrefix(name, p.prefix) && digits != "" && strings.Trim(digits, "0123456789") == "" {
				nodes = append(nodes, path.Join(p.dir, name))
			}
		}
	}
	compiled, err := n.cfg.CompilePolicy("")
	if err != nil || len(nodes) == 0 {
		return nil
	}
	slices.Sort(nodes)
	for _, rule := range compiled.WithoutMemlock(nodes) {
		found.add(Note, `set limits.memlock of the rule, such as to "unlimited" or to the size of the application's huge `+
			"pages, unless the runtime's own limit is unlimited",
			"rule %s grants devices whose programs pin memory (%s), and does not raise the limit of locked memory, which is "+
				"8 MiB by default", diag.Quote(rule), nodes[0])
	}
	return found
}
