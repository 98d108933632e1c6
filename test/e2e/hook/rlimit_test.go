// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

// The runtimes set the limit of locked memory that inject writes into a configuration, in place of the limit that it has.
func TestInjectedLimitOfLockedMemoryIsSet(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &own); err != nil || own.Max < 2<<20 {
		t.Skipf("skipped: the hard limit of locked memory is %d bytes", own.Max)
	}
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			jackfield, err := h.common.Command("jackfield")
			if err != nil {
				t.Fatal(err)
			}
			h.mkdir("tree")
			tree, err := sysfstest.New(h.path("tree"))
			if err == nil {
				err = tree.AddVDPA("vdpa0", "vhost_vdpa", "", 0, sysfstest.Zero())
			}
			if err == nil {
				err = tree.Link("/sys/dev/char/1:5", "/sys/devices/virtual/vdpa0/vhost-vdpa-0")
			}
			if err != nil {
				t.Fatal(err)
			}
			h.write("tree/etc/cdi/v.json", `{"cdiVersion":"0.6.0","kind":"v.com/vdpa","devices":[{"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/vhost-vdpa-0"}]}}]}`)
			h.write("tree/etc/jackfield/config.yaml", `policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {cdi: ["v.com/vdpa=*"]}, limits: {memlock: 2Mi}}]}`)
			spec := h.spec(container{id: "rlimit-" + name, command: "grep locked /proc/1/limits"})
			spec.Process.Rlimits = []rspec.POSIXRlimit{{Type: "RLIMIT_MEMLOCK", Soft: 1 << 20, Hard: own.Max}}
			data, err := json.Marshal(spec)
			if err != nil {
				t.Fatal(err)
			}
			h.write("bundle/config.json", string(data))
			out, err := exec.Command(jackfield, "inject", "--bundle", h.path("bundle"), "--root", h.path("tree"), "--config", h.path("tree/etc/jackfield/config.yaml"),
				"--namespace", "ns", "--cdi-device", "v.com/vdpa=a").CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			printed, err := h.output(exec.Command(h.runtimes()[name], "--root", h.path("oci-state"), "run", "--bundle", h.path("bundle"), "rlimit-"+name))
			h.checkPrinted(strings.Join(strings.Fields(printed), " "), err, "Max locked memory 2097152")
		})
	}
}
