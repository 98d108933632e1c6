// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// summary lists the parts of a spec that an injection changes.
func summary(s *rspec.Spec) string {
	var b strings.Builder
	for _, m := range s.Mounts {
		fmt.Fprintf(&b, "mount %s %s\n", m.Destination, m.Source)
	}
	if s.Hooks != nil {
		for _, h := range s.Hooks.CreateRuntime {
			fmt.Fprintf(&b, "hook %s\n", h.Path)
		}
	}
	if s.Linux == nil {
		return b.String()
	}
	for _, d := range s.Linux.Devices {
		fmt.Fprintf(&b, "node %s %s %d:%d\n", d.Path, d.Type, d.Major, d.Minor)
	}
	for host, n := range s.Linux.NetDevices {
		fmt.Fprintf(&b, "interface %s %s\n", host, n.Name)
	}
	if s.Linux.Resources != nil {
		for _, r := range s.Linux.Resources.Devices {
			fmt.Fprintf(&b, "rule %s %d:%d %q\n", r.Type, *r.Major, *r.Minor, r.Access)
		}
	}
	return b.String()
}

// TestInjectDifferences checks the results of both sides for each difference that
// docs/contributing/conformance-cdi.md lists. The generator does not generate these.
func TestInjectDifferences(t *testing.T) {
	two := func(a, b string) string {
		return `{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"d","containerEdits":` + a + `},{"name":"e","containerEdits":` + b + `}]}`
	}
	page, err := os.ReadFile("../../docs/contributing/conformance-cdi.md")
	if err != nil {
		t.Fatal(err)
	}
	one, three := int64(1), int64(3)
	withRule := &rspec.Linux{Resources: &rspec.LinuxResources{Devices: []rspec.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: &one, Minor: &three, Access: "rwm"}}}}
	for name, tc := range map[string]struct {
		text         string
		spec         rspec.Spec
		ours, theirs string // "error" if the injection fails
	}{
		"another node at the path": {
			text:   two(`{"deviceNodes":[{"path":"/dev/x","type":"c","major":1,"minor":3}]}`, `{"deviceNodes":[{"path":"/dev/x","type":"c","major":1,"minor":5}]}`),
			ours:   "node /dev/x c 1:5\nrule c 1:5 \"rwm\"\n",
			theirs: "node /dev/x c 1:5\nrule c 1:3 \"rwm\"\nrule c 1:5 \"rwm\"\n",
		},
		"one node, two mentions": {
			text:   two(`{"deviceNodes":[{"path":"/dev/null","permissions":"rw"}]}`, `{"deviceNodes":[{"path":"/dev/null","permissions":"r"}]}`),
			ours:   "node /dev/null c 1:3\nrule c 1:3 \"rw\"\n",
			theirs: "node /dev/null c 1:3\nrule c 1:3 \"rw\"\nrule c 1:3 \"r\"\n",
		},
		"a rule that is there": {
			text:   two(`{"deviceNodes":[{"path":"/dev/null"}]}`, `{"env":["A=b"]}`),
			spec:   rspec.Spec{Linux: withRule},
			ours:   "node /dev/null c 1:3\nrule c 1:3 \"rwm\"\n",
			theirs: "node /dev/null c 1:3\nrule c 1:3 \"rwm\"\nrule c 1:3 \"rwm\"\n",
		},
		"no permissions": {
			text:   two(`{"deviceNodes":[{"path":"/dev/null","permissions":"none"}]}`, `{"env":["A=b"]}`),
			ours:   "node /dev/null c 1:3\n",
			theirs: "node /dev/null c 1:3\nrule c 1:3 \"\"\n",
		},
		"an unbuffered node without numbers": {
			text:   two(`{"deviceNodes":[{"path":"/dev/null","type":"u"}]}`, `{"env":["A=b"]}`),
			ours:   "node /dev/null u 1:3\n",
			theirs: "error",
		},
		"spellings of a path": {
			text:   two(`{"deviceNodes":[{"path":"/dev//null"}],"mounts":[{"hostPath":"/a","containerPath":"/opt/x/"}]}`, `{"deviceNodes":[{"path":"/dev/null"}],"mounts":[{"hostPath":"/b","containerPath":"/opt/x"}]}`),
			ours:   "mount /opt/x /b\nnode /dev/null c 1:3\nrule c 1:3 \"rwm\"\n",
			theirs: "mount /opt/x/ /a\nmount /opt/x /b\nnode /dev//null c 1:3\nnode /dev/null c 1:3\nrule c 1:3 \"rwm\"\nrule c 1:3 \"rwm\"\n",
		},
		"/var/run among those of its depth": {
			text:   two(`{"mounts":[{"hostPath":"/a","containerPath":"/run/x/y"}]}`, `{"mounts":[{"hostPath":"/b","containerPath":"/var/run/x"}]}`),
			ours:   "mount /var/run/x /b\nmount /run/x/y /a\n",
			theirs: "mount /run/x/y /a\nmount /var/run/x /b\n",
		},
		"/run/x where the container has /var/run/x": {
			text:   two(`{"mounts":[{"hostPath":"/a","containerPath":"/run/x"}]}`, `{"env":["A=b"]}`),
			spec:   rspec.Spec{Mounts: []rspec.Mount{{Destination: "/var/run/x", Source: "/b"}}},
			ours:   "error",
			theirs: "mount /run/x /a\nmount /var/run/x /b\n",
		},
		"the same mount at /run/x and /var/run/x": {
			text:   two(`{"mounts":[{"hostPath":"/a","containerPath":"/run/x"}]}`, `{"env":["A=b"]}`),
			spec:   rspec.Spec{Mounts: []rspec.Mount{{Destination: "/var/run/x", Source: "/a"}}},
			ours:   "mount /var/run/x /a\n",
			theirs: "mount /run/x /a\nmount /var/run/x /a\n",
		},
		"a node at /run/x and at /var/run/x": {
			text:   two(`{"deviceNodes":[{"path":"/var/run/x","hostPath":"/dev/null"}]}`, `{"deviceNodes":[{"path":"/run/x","hostPath":"/dev/zero"}]}`),
			ours:   "node /run/x c 1:5\nrule c 1:5 \"rwm\"\n",
			theirs: "node /var/run/x c 1:3\nnode /run/x c 1:5\nrule c 1:3 \"rwm\"\nrule c 1:5 \"rwm\"\n",
		},
		"a mount whose destination is no absolute path": {
			text:   two(`{"mounts":[{"hostPath":"/a","containerPath":"/x"}]}`, `{"env":["A=b"]}`),
			spec:   rspec.Spec{Mounts: []rspec.Mount{{Destination: "x", Source: "/b"}}},
			ours:   "error",
			theirs: "mount x /b\nmount /x /a\n",
		},
		"stacked mounts": {
			text:   two(`{"mounts":[{"hostPath":"/a","containerPath":"/x"}]}`, `{"mounts":[{"hostPath":"/b","containerPath":"/x"}]}`),
			spec:   rspec.Spec{Mounts: []rspec.Mount{{Destination: "/x", Source: "1"}, {Destination: "/x", Source: "2"}}},
			ours:   "mount /x 2\nmount /x /b\n",
			theirs: "mount /x /a\nmount /x /b\n",
		},
		"several nodes at the path": {
			text:   two(`{"deviceNodes":[{"path":"/dev/null","permissions":"r"}]}`, `{"env":["A=b"]}`),
			spec:   rspec.Spec{Linux: &rspec.Linux{Devices: []rspec.LinuxDevice{{Path: "/dev/null"}, {Path: "/dev/null"}, {Path: "/dev/null"}}}},
			ours:   "node /dev/null c 1:3\nrule c 1:3 \"r\"\n",
			theirs: "node /dev/null c 1:3\nnode /dev/null  0:0\nrule c 1:3 \"r\"\n",
		},
		"one network device, two mentions": {
			text:   two(`{"netDevices":[{"hostInterfaceName":"eth1","name":"net1"}]}`, `{"netDevices":[{"hostInterfaceName":"eth1","name":"net1"}]}`),
			ours:   "interface eth1 net1\n",
			theirs: "error",
		},
		"a node that contradicts the file": {
			text:   two(`{"deviceNodes":[{"path":"/dev/null","type":"c","major":1,"minor":5}]}`, `{"env":["A=b"]}`),
			ours:   "error",
			theirs: "node /dev/null c 1:5\nrule c 1:5 \"rwm\"\n",
		},
		"a hook that is there": {
			text:   two(`{"hooks":[{"hookName":"createRuntime","path":"/h"}]}`, `{"env":["A=b"]}`),
			spec:   rspec.Spec{Hooks: &rspec.Hooks{CreateRuntime: []rspec.Hook{{Path: "/h"}}}},
			ours:   "hook /h\n",
			theirs: "hook /h\nhook /h\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !bytes.Contains(page, []byte("\n| "+name+" | ")) {
				t.Errorf("docs/contributing/conformance-cdi.md has no row %q", name)
			}
			dirs := writeSpecDir(t, tc.text)
			ours, theirs := copySpec(t, &tc.spec), copySpec(t, &tc.spec)
			switch err := inject(newEngine(t, dirs), ours, "v.com/c=d", "v.com/c=e"); {
			case tc.ours == "error":
				if err == nil {
					t.Errorf("jackfield: %s", summary(ours))
				}
			case err != nil:
				t.Fatal(err)
			default:
				if diff := cmp.Diff(tc.ours, summary(ours)); diff != "" {
					t.Errorf("jackfield: %s", diff)
				}
			}
			got := ""
			if _, err := newUpstreamCache(t, dirs).InjectDevices(theirs, "v.com/c=d", "v.com/c=e"); err != nil {
				got = "error"
			} else {
				got = summary(theirs)
			}
			if diff := cmp.Diff(tc.theirs, got); diff != "" {
				t.Errorf("upstream differs from docs/contributing/conformance-cdi.md: %s", diff)
			}
		})
	}
}
