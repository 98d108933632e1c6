// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"fmt"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/apply/oci"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// The annotations by which Kubernetes' runtimes say in an OCI configuration whose
// container it is. They write them over what a pod's author wrote, in each container's
// configuration: of others, such as CRI-O's RuntimeHandler and ContainerName, which it
// writes for a sandbox alone, a container has the author's.
const (
	crioPrefix     = "io.kubernetes.cri-o."
	crioSandboxID  = crioPrefix + "SandboxID"
	crioType       = crioPrefix + "ContainerType"
	crioLabels     = crioPrefix + "Labels" // of the container, JSON: the kubelet's own
	ctrdPrefix     = "io.kubernetes.cri."
	ctrdSandboxID  = ctrdPrefix + "sandbox-id"
	ctrdType       = ctrdPrefix + "container-type"
	ctrdNamespace  = ctrdPrefix + "sandbox-namespace"
	ctrdPod        = ctrdPrefix + "sandbox-name"
	ctrdUID        = ctrdPrefix + "sandbox-uid"
	ctrdName       = ctrdPrefix + "container-name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelUID       = "io.kubernetes.pod.uid"
	labelName      = "io.kubernetes.container.name"
	managerKey     = "io.container.manager"
	podman         = "libpod"
)

// subject is whose container it is.
type subject struct {
	sandbox, namespace, pod, uid, container string
	pause                                   bool // the sandbox's own container
	ofPod                                   bool // a Kubernetes runtime made it
}

// subjectOf reads whose container it is. A container of no pod, such as one of
// Podman's, has no namespace, and is its own sandbox: a CNI network knows it by its
// ID. Podman gives some containers CRI-O's annotations, and CRI-O writes who manages a
// container over what its pod says; containerd does neither.
func subjectOf(annotations map[string]string, id string) (subject, error) {
	crio, ctrd := annotations[crioSandboxID], annotations[ctrdSandboxID]
	switch {
	case annotations[managerKey] == podman && ctrd != "":
		return subject{}, fmt.Errorf("annotations: found both %s=%s and %s, and only one runtime can have made the container: %w", managerKey, podman, ctrdSandboxID, errdefs.ErrConflict)
	case annotations[managerKey] == podman:
		return subject{sandbox: id, container: id}, nil
	case crio != "" && ctrd != "":
		return subject{}, fmt.Errorf("annotations: found both %s and %s, and only one runtime can have made the container: %w", crioSandboxID, ctrdSandboxID, errdefs.ErrConflict)
	case crio != "":
		return crioSubject(annotations, crio)
	case ctrd != "":
		s := subject{sandbox: ctrd, namespace: annotations[ctrdNamespace], pod: annotations[ctrdPod], uid: annotations[ctrdUID],
			container: annotations[ctrdName], pause: annotations[ctrdType] == "sandbox", ofPod: true}
		return s, s.named(ctrdSandboxID, ctrdNamespace)
	}
	return subject{sandbox: id, container: id}, nil
}

func crioSubject(annotations map[string]string, sandbox string) (subject, error) {
	labels := annotations
	if text, ok := annotations[crioLabels]; ok {
		labels = nil
		if err := json.Unmarshal([]byte(text), &labels); err != nil {
			return subject{}, fmt.Errorf("annotation %s: %w: %w", crioLabels, err, errdefs.ErrInvalidArgument)
		}
	}
	s := subject{sandbox: sandbox, namespace: labels[labelNamespace], pod: labels[labelPod], uid: labels[labelUID], container: labels[labelName],
		pause: annotations[crioType] == "sandbox", ofPod: true}
	return s, s.named(crioSandboxID, labelNamespace)
}

// named refuses a pod's container without a namespace: the empty one is that of
// containers of no pod, which have rules of their own.
func (s *subject) named(by, missing string) error {
	if s.namespace != "" {
		return nil
	}
	return fmt.Errorf("annotations: %s says that the container is of a pod, and %s is missing: %w", by, missing, errdefs.ErrInvalidArgument)
}

// request is the container as its configuration describes it; pid is its first process,
// 0 before there is one.
func (s *subject) request(id string, annotations map[string]string, spec *rspec.Spec, pid int) *resolve.Request {
	req := &resolve.Request{
		// A container's configuration has neither in the runtime's own words, only in its author's.
		HandlerUnknown: true, LabelsUnknown: s.ofPod,
		SandboxID: s.sandbox, ContainerID: id, Namespace: s.namespace, Pod: s.pod, PodUID: s.uid, Container: s.container,
		Annotations: annotations, Have: oci.Existing(spec), UserNS: userNamespaceOf(spec, pid),
	}
	if p := spec.Process; p != nil {
		req.User = &resolve.User{UID: p.User.UID, GID: p.User.GID}
	}
	if !s.ofPod {
		req.Have.Env = withoutDevices(req.Have.Env)
	}
	return req
}

// withoutDevices is env less the variables by which a device plugin says what it
// allocated: where there is no kubelet, the image or a user wrote them.
func withoutDevices(env []string) []string {
	var out []string
	for i, kv := range env {
		if strings.HasPrefix(kv, "PCIDEVICE_") {
			if out == nil {
				out = append(make([]string, 0, len(env)), env[:i]...)
			}
			continue
		}
		if out != nil {
			out = append(out, kv)
		}
	}
	if out == nil {
		return env
	}
	return out
}
