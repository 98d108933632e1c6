// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// checkKubelet checks the socket at which the kubelet says which devices it allocated.
func (d *doctor) checkKubelet() {
	socket := d.cfg.Kubelet.PodResourcesSocket
	st, err := d.Host.Stat(socket)
	switch {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK:
		d.reportOK("kubelet", "the Pod Resources socket is %s", socket)
	case err == nil:
		d.report("kubelet", Error, "", "%s is a %s, not a socket", socket, hostfs.TypeName(st.Mode))
	case d.cfg.Kubelet.Required:
		d.report("kubelet", Error, "start the kubelet, and mount the socket's directory into a DaemonSet; or set kubelet.required to false", "the Pod Resources socket cannot be used (%v), and kubelet.required is true: no container gets a PCI or vDPA device", err)
	default:
		d.report("kubelet", Note, "on a Kubernetes node, mount the socket's directory into a DaemonSet and set kubelet.required", "there is no Pod Resources socket %s: a container's environment says which devices are its own", socket)
	}
}
