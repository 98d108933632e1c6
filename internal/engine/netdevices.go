// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfs"
)

// checkInterfaces refuses a network device whose interface the host lacks at this moment: the OCI runtime would not
// start the container, with an error that does not say why. The runtime moves an interface into the network namespace
// of the pod under its new name, where it stays until the pod ends. Then the kernel moves a physical interface back,
// still under the new name, and deletes a virtual one.
func checkInterfaces(in *inputs, devices []edit.NetDevice) error {
	for _, d := range devices {
		if has, known := sysfs.HasInterface(in.host, d.HostName); has || !known {
			continue
		}
		if renamed, _ := sysfs.HasInterface(in.host, d.Name); renamed && d.Name != d.HostName {
			return fmt.Errorf("network device %q: this host has no such interface, and it has %q, the name in the container: "+
				"an interface keeps that name after its pod; %s: %w", d.HostName, d.Name,
				in.opts.onNode(fmt.Sprintf("run `ip link set %s name %s`", d.Name, d.HostName)), errdefs.ErrNotFound)
		}
		return fmt.Errorf("network device %q: this host has no such interface; if a container has received it, it is in the "+
			"network namespace of that pod, also after a restart of the container: delete that pod; after it %s: %w",
			d.HostName, in.opts.onNode("rename the interface to "+d.HostName), errdefs.ErrNotFound)
	}
	return nil
}
