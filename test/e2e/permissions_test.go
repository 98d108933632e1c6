// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// accesses are the values of permissions that the tests use.
func accesses() []string { return []string{"r", "w", "rw", "rwm"} }

// permissionsSpec returns a CDI file with a device for each access. It has two nodes that no runtime grants by itself:
// the loop control device and a loop device.
func permissionsSpec() string {
	var devices []string
	for _, access := range accesses() {
		devices = append(devices, fmt.Sprintf(`{"name": %[1]q, "containerEdits": {"deviceNodes": [
			{"path": "/dev/char", "hostPath": "/run/devs/char", "permissions": %[1]q},
			{"path": "/dev/block", "hostPath": "/run/devs/block", "permissions": %[1]q}]}}`, access))
	}
	return `{"cdiVersion": "0.6.0", "kind": "vendor.com/net", "devices": [` + strings.Join(devices, ",") + "]}"
}

// openInEachMode is a script that opens both devices for reading, for writing, and for both, and prints the modes that
// the device cgroup permits. A loop device without a backing file can be opened.
const openInEachMode = `for d in char block; do
	for mode in "r <" "w >>" "rw <>"; do
		set -- $mode
		case $(eval ": $2 /dev/$d" 2>&1) in *"not permitted"*) ;; *) echo $d $1 ;; esac
	done
done`

// permitted returns the output of openInEachMode for the permissions of a CDI file.
func permitted(access string) string {
	var lines []string
	for _, device := range []string{"char", "block"} {
		for _, mode := range []string{"r", "w", "rw"} {
			if strings.Contains(access, mode) {
				lines = append(lines, device+" "+mode)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// ociSetup is an OCI runtime with a version of cgroups.
type ociSetup struct{ crun, unified bool }

// ociSetups returns the setups in which a container runtime is tested. On a machine with both versions of cgroups,
// version 2 lacks the controllers that containerd needs.
func ociSetups(g node.Generation) []ociSetup {
	switch g {
	case node.CRIO:
		return []ociSetup{{}, {unified: true}, {crun: true}}
	case node.CRIOCrun:
		return []ociSetup{{crun: true, unified: true}}
	case node.V24:
		return []ociSetup{{}, {crun: true}}
	default:
		return []ociSetup{{}}
	}
}

// A container can open a device as its CDI file permits, and in no other way: with runc and with crun, and with both
// versions of cgroups. A runtime with an older NRI refuses a container whose access differs from the runtime's default.
func TestPermissionsAreExact(t *testing.T) {
	e2e.Require(t)
	for _, g := range node.Generations() {
		for _, p := range ociSetups(g) {
			t.Run(fmt.Sprintf("%s/crun=%t,unified=%t", g, p.crun, p.unified), func(t *testing.T) {
				h := e2e.Fresh(t, node.Options{Generation: g, Crun: p.crun, Unified: p.unified})
				h.StartPlugin(node.PluginOptions{Config: nodeConfig})
				h.CharDevice("/run/devs/char", 10, 237)
				blockDevice(t, "/run/devs/block")
				h.WriteFile("/etc/cdi/vendor.json", permissionsSpec())
				annotations := map[string]string{}
				for _, access := range accesses() {
					annotations["devices.jackfield.dev/container."+access] = "vendor.com/net=" + access
				}
				pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1", Annotations: annotations})
				for _, access := range accesses() {
					checkPermissions(t, pod, access, compatibility.Permissions().Has(g))
				}
			})
		}
	}
}

// checkPermissions runs a container with both devices. exact is false where NRI has no field for the access.
func checkPermissions(t *testing.T, pod *e2e.Pod, access string, exact bool) {
	t.Helper()
	o := node.ContainerOptions{Name: access}
	if !exact && len(access) < 2 {
		if err := pod.CreateFails(o); !strings.Contains(err.Error(), "it needs NRI 0.10") {
			t.Errorf("%s: the refusal is %v", access, err)
		}
		return
	}
	ctr := pod.Run(o)
	if got, want := ctr.Output("sh", "-c", openInEachMode), permitted(access); got != want {
		t.Errorf("%s permits:\n%s\nwant:\n%s\nthe rules are %+v", access, got, want, ctr.OCISpec().Linux.Resources.Devices)
	}
}

func blockDevice(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mknod(path, unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
}
