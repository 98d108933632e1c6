// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/parts"
)

// The wrapper of docs/hooks.md, with another device: it changes the bundle, and runc
// is none the wiser.
func TestWrapper(t *testing.T) {
	h := newHost(t)
	root, err := parts.ModuleRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/hooks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```sh\n#!/bin/sh\n")
	script, _, end := strings.Cut(rest, "```")
	if !ok || !end || strings.Count(script, "\n") > 5 {
		t.Fatalf("docs/hooks.md: no wrapper, or a long one: %q", script)
	}
	command, err := h.common.Command("jackfield")
	if err != nil {
		t.Fatal(err)
	}
	// The programs are found by name, as they would be.
	h.mkdir("path")
	for name, file := range map[string]string{"jackfield": command, "runc": h.common.Runc} {
		if err := os.Symlink(file, h.path("path/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", h.path("path")+":"+os.Getenv("PATH"))
	t.Setenv("CDI_SPEC_DIRS", h.path("cdi"))
	h.write("wrapper", "#!/bin/sh\n"+strings.ReplaceAll(script, "vendor.com/net=vf0", "vendor.example.com/dev=full"))
	if err := os.Chmod(h.path("wrapper"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := h.run(h.path("wrapper"), container{command: "echo FANCY=$FANCY; " + `dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1`})
	h.wants(out, err, "FANCY=1", "00 00 00 00")
	h.write("wrapper", "#!/bin/sh\n"+strings.ReplaceAll(script, "vendor.com/net=vf0", "vendor.example.com/dev=none"))
	out, err = h.run(h.path("wrapper"), container{command: "echo started"})
	refused(t, out, err, "vendor.example.com/dev=none")
}
