// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/ocivalid"
	"github.com/jackfield/jackfield/test/parts"
)

// wrapper writes the wrapper of docs/reference/oci-hook.md, with another device and more options of
// jackfield inject. "runc" in it may be another runtime.
func (h *host) wrapper(runtime, device string, more ...string) string {
	h.t.Helper()
	root, err := parts.ModuleRoot(".")
	if err != nil {
		h.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(h.readFile(root+"/docs/reference/oci-hook.md"), "   ```sh\n   #!/bin/sh\n")
	script, _, end := strings.Cut(rest, "   ```")
	if !ok || !end || strings.Count(script, "\n") > 20 {
		h.t.Fatalf("docs/reference/oci-hook.md has no wrapper, or it is too long: %q", script)
	}
	command, err := h.common.Command("jackfield")
	if err != nil {
		h.t.Fatal(err)
	}
	// The wrapper finds the programs by name, as on a host.
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

// The wrapper changes the bundle before the runtime reads it. A missing device and a denial of the named
// configuration stop the container.
func TestWrapperChangesBundleFirst(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			runtime := h.runtimes()[name]
			const use = "echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1"
			out, err := h.run(h.wrapper(runtime, "vendor.example.com/dev=full"), container{command: use})
			h.checkPrinted(out, err, "FANCY=1", "00 00 00 00")
			before, err := json.Marshal(h.spec(container{command: use}))
			if err != nil {
				t.Fatal(err)
			}
			ocivalid.CheckText(t, before, []byte(h.read("bundle/config.json")))
			out, err = h.run(h.wrapper(runtime, "vendor.example.com/dev=none"), container{command: "echo started"})
			checkRefused(t, out, err, "vendor.example.com/dev=none")
			out, err = h.run(h.wrapper(runtime, "vendor.example.com/dev=full", "--config", h.path("config.yaml")), container{command: use})
			h.checkPrinted(out, err, "FANCY=1", "00 00 00 00")
			out, err = h.run(h.wrapper(runtime, "vendor.example.com/dev=secret", "--config", h.path("config.yaml")), container{command: "echo started"})
			checkRefused(t, out, err, `deny CDI device "vendor.example.com/dev=secret"`)
			// Every spelling of the bundle option.
			wrapper := h.wrapper(runtime, "vendor.example.com/dev=full")
			out, err = h.run(runtime, container{command: use}) // which creates a new bundle
			h.checkPrinted(out, err, "FANCY=\n")
			out, err = h.output(exec.Command(wrapper, "--root", h.path("oci-state"), "run", "--bundle="+h.path("bundle"), "said-otherwise"))
			h.checkPrinted(out, err, "FANCY=1")
			// Arguments of other commands are unchanged.
			out, err = h.output(exec.Command(wrapper, "--root", h.path("oci-state"), "exec", "nobody", "git", "create", "run"))
			if err == nil || !strings.Contains(out, "nobody") && !strings.Contains(out, "does not exist") || strings.Contains(out, "inject") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
