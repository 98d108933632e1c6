// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/parts"
)

// wrapper is the one of docs/hooks.md, with another device and more options of jackfield
// inject; what it calls runc is another runtime, perhaps.
func (h *host) wrapper(runtime, device string, more ...string) string {
	h.t.Helper()
	root, err := parts.ModuleRoot(".")
	if err != nil {
		h.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(h.readFile(root+"/docs/hooks.md"), "```sh\n#!/bin/sh\n")
	script, _, end := strings.Cut(rest, "```")
	if !ok || !end || strings.Count(script, "\n") > 5 {
		h.t.Fatalf("docs/hooks.md: no wrapper, or a long one: %q", script)
	}
	command, err := h.common.Command("jackfield")
	if err != nil {
		h.t.Fatal(err)
	}
	// The programs are found by name, as they would be.
	h.mkdir("path")
	for name, file := range map[string]string{"jackfield": command, "runc": runtime} {
		if err := os.Symlink(file, h.path("path/"+name)); err != nil && !os.IsExist(err) {
			h.t.Fatal(err)
		}
	}
	h.t.Setenv("PATH", h.path("path")+":"+os.Getenv("PATH"))
	h.t.Setenv("CDI_SPEC_DIRS", h.path("cdi"))
	h.write("wrapper", "#!/bin/sh\n"+strings.ReplaceAll(script, "vendor.com/net=vf0", strings.Join(append([]string{device}, more...), " ")))
	if err := os.Chmod(h.path("wrapper"), 0o755); err != nil {
		h.t.Fatal(err)
	}
	return h.path("wrapper")
}

// It changes the bundle, and the runtime is none the wiser. What is not there, and what
// the policy of a configuration that it names refuses, stops the container.
func TestWrapper(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			runtime := h.runtimes()[name]
			const use = "echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1"
			out, err := h.run(h.wrapper(runtime, "vendor.example.com/dev=full"), container{command: use})
			h.wants(out, err, "FANCY=1", "00 00 00 00")
			out, err = h.run(h.wrapper(runtime, "vendor.example.com/dev=none"), container{command: "echo started"})
			refused(t, out, err, "vendor.example.com/dev=none")
			out, err = h.run(h.wrapper(runtime, "vendor.example.com/dev=full", "--config", h.path("config.yaml")), container{command: use})
			h.wants(out, err, "FANCY=1", "00 00 00 00")
			out, err = h.run(h.wrapper(runtime, "vendor.example.com/dev=secret", "--config", h.path("config.yaml")), container{command: "echo started"})
			refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`)
			// However the bundle is said.
			wrapper := h.wrapper(runtime, "vendor.example.com/dev=full")
			out, err = h.run(runtime, container{command: use}) // which has a new one made
			h.wants(out, err, "FANCY=\n")
			out, err = h.output(exec.Command(wrapper, "--root", h.path("oci-state"), "run", "--bundle="+h.path("bundle"), "said-otherwise"))
			h.wants(out, err, "FANCY=1")
			// The words of another command are its own.
			out, err = h.output(exec.Command(wrapper, "--root", h.path("oci-state"), "exec", "nobody", "git", "create", "run"))
			if err == nil || !strings.Contains(out, "nobody") && !strings.Contains(out, "does not exist") || strings.Contains(out, "inject") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
