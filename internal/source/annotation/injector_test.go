// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestInjectorAnnotationsOfContainerTakePrecedence(t *testing.T) {
	annotations := map[string]string{
		"devices.noderesource.dev/container.app": "- path: /dev/null\n  type: c\n  major: 1\n  minor: 3\n  file_mode: 0640\n  uid: 1000\n  gid: 0\n",
		"devices.nri.io":                         "not parsed for app",
		"mounts.nri.io/pod":                      `[{"source": "/srv/a", "destination": "/a", "type": "bind", "options": ["rbind", "ro"]}]`,
		"cdi-devices.noderesource.dev":           "- vendor.com/net=a\n- vendor.com/net=b\n",
	}
	if !HasInjector(annotations) || HasInjector(map[string]string{"devices.jackfield.dev": "x", "xdevices.nri.io": "y", "devices.nri.iox": ""}) {
		t.Error("HasInjector")
	}
	in, err := ParseInjector(annotations, "app")
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Nodes) != 1 || len(in.Mounts) != 1 || len(in.Devices) != 2 {
		t.Fatalf("got %+v", in)
	}
	n := in.Nodes[0]
	if n.Path != "/dev/null" || n.Type != "c" || n.Major != 1 || n.Minor != 3 || *n.FileMode != 0o640 || *n.UID != 1000 || *n.GID != 0 || n.Item != "/dev/null" {
		t.Errorf("node %+v", n)
	}
	if m := in.Mounts[0]; m.Source != "/srv/a" || m.Destination != "/a" || m.Type != "bind" || len(m.Options) != 2 || m.Key != "mounts.nri.io/pod" {
		t.Errorf("mount %+v", m)
	}
	if in.Devices[1].Name != "vendor.com/net=b" || in.Devices[1].Position != 2 {
		t.Errorf("devices %+v", in.Devices)
	}
	if none, err := ParseInjector(map[string]string{"devices.nri.io/container.other": "x"}, "app"); err != nil || len(none.Nodes) != 0 {
		t.Errorf("another container's: %+v, %v", none, err)
	}
}

// TestMostSpecificInjectorAnnotationCounts checks the order of getAnnotation in NRI's device-injector, for each kind of annotation:
// the scope decides before the domain.
func TestMostSpecificInjectorAnnotationCounts(t *testing.T) {
	order := []string{"noderesource.dev/container.app", "nri.io/container.app", "noderesource.dev/pod", "nri.io/pod", "noderesource.dev", "nri.io"}
	for _, kind := range []string{"devices.", "mounts.", "cdi-devices."} {
		annotations := map[string]string{}
		for i := len(order) - 1; i >= 0; i-- {
			annotations[kind+order[i]] = "- {}" // an error names the key
			_, err := ParseInjector(annotations, "app")
			var e *Error
			if !errors.As(err, &e) || e.Key != kind+order[i] {
				t.Errorf("of %d keys %q counts: %v", len(annotations), kind+order[i], err)
			}
		}
	}
}

// TestModeOfInjectorNodeMayHaveTypeBits checks a mode that the author copied from stat(2).
func TestModeOfInjectorNodeMayHaveTypeBits(t *testing.T) {
	for mode, want := range map[string]string{"8624": "", "020660": "", "060660": "permission bits", "24576": "permission bits"} {
		in, err := ParseInjector(map[string]string{"devices.nri.io": "- {path: /dev/null, type: c, major: 1, minor: 3, file_mode: " + mode + "}"}, "app")
		switch {
		case want == "" && (err != nil || *in.Nodes[0].FileMode != 0o660):
			t.Errorf("%s: %+v, %v", mode, in, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestFaultyInjectorAnnotationsAreRefused(t *testing.T) {
	many := strings.Repeat("- {path: /dev/null, type: c, major: 1, minor: 3}\n", MaxItems+1)
	for name, tc := range map[string]struct{ key, value, want string }{
		"no list":      {"devices.nri.io", "path: /dev/null", "is an object"},
		"unknown key":  {"devices.nri.io", "- {path: /dev/null, type: c, major: 1, minor: 3, access: rwm}", `unknown key "access"`},
		"twice":        {"devices.nri.io", "- {path: /dev/null, path: /dev/sda, type: c, major: 1, minor: 3}", "path: found the key a second time"},
		"missing":      {"devices.nri.io", "- {path: /dev/null, type: c, major: 1}", "minor is missing"},
		"type":         {"devices.nri.io", "- {path: /dev/null, type: u, major: 1, minor: 3}", "must be b or c"},
		"text number":  {"devices.nri.io", "- {path: /dev/null, type: c, major: one, minor: 3}", "must be a device number"},
		"negative":     {"devices.nri.io", "- {path: /dev/null, type: c, major: -1, minor: 3}", "must be a device number, 0 to 4294967295"},
		"setuid node":  {"devices.nri.io", "- {path: /dev/null, type: c, major: 1, minor: 3, file_mode: 04755}", "permission bits"},
		"negative uid": {"devices.nri.io", "- {path: /dev/null, type: c, major: 1, minor: 3, uid: -1}", "must be a user ID, 0 to 4294967295"},
		"anchor":       {"mounts.nri.io", "- &a {source: /a, destination: /b}", "anchors are not allowed"},
		"alias":        {"mounts.nri.io", "- {source: &a /a, destination: *a}", "anchors"},
		"options":      {"mounts.nri.io", "- {source: /a, destination: /b, options: [[ro]]}", "options[0]: found a list: must be a string"},
		"no options":   {"mounts.nri.io", "- {source: /a, destination: /b, options: {}}", "options: found an object: must be a list"},
		"path object":  {"mounts.nri.io", "- {source: [/a], destination: /b}", "must be a string"},
		"many":         {"devices.nri.io", many, "at most 1024"},
		"alias of CDI": {"cdi-devices.nri.io", "- nvidia=0", "must be a CDI name"},
		"huge":         {"mounts.nri.io", strings.Repeat("#", MaxValueBytes+1), "bytes"},
	} {
		in, err := ParseInjector(map[string]string{tc.key: tc.value}, "app")
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %+v, %v; want %q", name, in, err, tc.want)
		}
	}
}

func FuzzInjector(f *testing.F) {
	f.Add("- {path: /dev/null, type: c, major: 1, minor: 3}", "- {source: /a, destination: /b, options: [ro]}", "- a.com/b=c")
	f.Add("[{path: x}]", "- {source: &a /a}", "x,y")
	f.Fuzz(func(t *testing.T, nodes, mounts, cdi string) {
		in, err := ParseInjector(map[string]string{"devices.nri.io": nodes, "mounts.nri.io": mounts, "cdi-devices.nri.io": cdi}, "app")
		if err != nil {
			if len(in.Nodes)+len(in.Mounts)+len(in.Devices) > 0 {
				t.Error("requests beside the error")
			}
			if len(err.Error()) > 1024 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
			return
		}
		for _, n := range in.Nodes {
			if n.Type != "b" && n.Type != "c" || n.FileMode != nil && *n.FileMode > 0o777 {
				t.Errorf("accepted: %+v", n)
			}
		}
	})
}
