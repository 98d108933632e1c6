// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/edit/oci"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/annotation"
)

// Annotations with which Kubernetes' runtimes identify pod and container in an OCI configuration.
// The runtimes overwrite values of the pod's author, in each container's configuration. Other
// annotations of the runtimes cannot be trusted: CRI-O writes RuntimeHandler and ContainerName only
// for a sandbox, so in a container's configuration they come from the author.
const (
	crioPrefix     = "io.kubernetes.cri-o."
	crioSandboxID  = crioPrefix + "SandboxID"
	crioType       = crioPrefix + "ContainerType"
	crioLabels     = crioPrefix + "Labels" // the container's labels as JSON, written by the kubelet
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

// subject identifies the container and its pod.
type subject struct {
	sandbox, namespace, pod, uid, container string
	pause                                   bool // the sandbox's own container
	ofPod                                   bool // created by a Kubernetes runtime
}

// identify reads the configuration and identifies the container. It denies requests that can come
// from an image. For a sandbox's own container, which requests nothing, it reads no configuration.
func (h *hook) identify(annotations map[string]string, id string) (subject, error) {
	s, err := subjectOf(annotations, id)
	if err != nil || s.pause {
		return s, err
	}
	if err := h.loadConfig(); err != nil {
		return s, err
	}
	return s, h.checkAskedBy(&s, annotations)
}

// subjectOf identifies the container by its annotations. A container outside of pods, such as
// Podman's, has no namespace and is its own sandbox, because CNI networks use the container's ID.
// Podman sets CRI-O's annotations on some containers. CRI-O overwrites a pod's manager annotation,
// but containerd does not.
func subjectOf(annotations map[string]string, id string) (subject, error) {
	crio, ctrd := annotations[crioSandboxID], annotations[ctrdSandboxID]
	// Podman's mark comes first, because Podman sets CRI-O's annotations as well. Annotations of two runtimes
	// are refused, because the author of a pod can add those of the runtime that did not create it.
	switch {
	case annotations[managerKey] == podman && ctrd != "":
		return subject{}, fmt.Errorf("annotations: found both %s=%s and %s, but only one runtime can have created "+
			"the container: %w", managerKey, podman, ctrdSandboxID, errdefs.ErrConflict)
	case annotations[managerKey] == podman:
		return subject{sandbox: id, container: id}, nil
	case crio != "" && ctrd != "":
		return subject{}, fmt.Errorf("annotations: found both %s and %s, but only one runtime can have created the "+
			"container: %w", crioSandboxID, ctrdSandboxID, errdefs.ErrConflict)
	case crio != "":
		return crioSubject(annotations, crio)
	case ctrd != "":
		s := subject{sandbox: ctrd, namespace: annotations[ctrdNamespace], pod: annotations[ctrdPod],
			uid:       annotations[ctrdUID],
			container: annotations[ctrdName], pause: annotations[ctrdType] == "sandbox", ofPod: true}
		return s, s.checkNamespace(ctrdSandboxID, ctrdNamespace)
	}
	return subject{sandbox: id, container: id}, nil
}

// crioSubject identifies a container of CRI-O. The kubelet's labels are in one annotation, or are themselves
// annotations.
func crioSubject(annotations map[string]string, sandbox string) (subject, error) {
	labels := annotations
	if text, ok := annotations[crioLabels]; ok {
		labels = nil
		if err := (jsontree.Decoder{}).Unmarshal(text, &labels); err != nil {
			return subject{}, fmt.Errorf("annotation %s: %w", crioLabels, err)
		}
	}
	s := subject{sandbox: sandbox, namespace: labels[labelNamespace], pod: labels[labelPod], uid: labels[labelUID],
		container: labels[labelName],
		pause:     annotations[crioType] == "sandbox", ofPod: true}
	return s, s.checkNamespace(crioSandboxID, labelNamespace)
}

// checkNamespace returns an error for a pod's container without a namespace. The empty namespace
// belongs to containers outside of pods, which have other policy rules.
func (s *subject) checkNamespace(by, missing string) error {
	if s.namespace != "" {
		return nil
	}
	return fmt.Errorf("annotations: %s marks the container as part of a pod, but %s is missing: %w", by, missing,
		errdefs.ErrInvalidArgument)
}

// checkAskedBy denies the requests of a container outside of pods that lacks the annotation of
// hook.askedBy. Podman copies the annotations of an image's manifest to the container, where they
// look like the user's. The author of an image does not know the annotation's value.
func (h *hook) checkAskedBy(s *subject, annotations map[string]string) error {
	key, value, ok := strings.Cut(h.cfg.Hook.AskedBy, "=")
	if !ok || s.ofPod || annotations[key] == value {
		return nil
	}
	if !annotation.HasAny(annotations) && !(h.cfg.Compat.DeviceInjector && annotation.HasInjector(annotations)) {
		return nil
	}
	return fmt.Errorf("annotations request devices or networks, but may come from the image: hook.askedBy also "+
		"requires annotation %s; start the container with --annotation %s=VALUE, with the VALUE of the "+
		"configuration: %w", key, key, errdefs.ErrPermissionDenied)
}

// request returns the request of the container in spec. pid is the container's first process, or 0
// before it exists.
func (s *subject) request(id string, annotations map[string]string, spec *rspec.Spec, pid int) *engine.Request {
	req := &engine.Request{
		// The configuration has both only from the pod's author, not from the runtime.
		HandlerUnknown: true, LabelsUnknown: s.ofPod,
		SandboxID: s.sandbox, ContainerID: id, Namespace: s.namespace, Pod: s.pod, PodUID: s.uid,
		Container:   s.container,
		Annotations: annotations, Have: oci.Existing(spec), UserNS: userNamespaceOf(spec, pid),
	}
	if p := spec.Process; p != nil {
		req.User = &engine.User{UID: p.User.UID, GID: p.User.GID}
	}
	if !s.ofPod {
		req.Have.Env = withoutDeviceVariables(req.Have.Env)
	}
	return req
}

// withoutDeviceVariables returns env without the variables of device plugins. Without a kubelet
// they come from the image or the user.
func withoutDeviceVariables(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "PCIDEVICE_") })
}

// userNamespaceOf returns the container's own user namespace, or nil. pid is the container's first
// process. Before it exists pid is 0, and the namespace is the one that the configuration creates
// or joins.
func userNamespaceOf(spec *rspec.Spec, pid int) *engine.UserNS {
	if spec.Linux == nil {
		return nil
	}
	for i := range spec.Linux.Namespaces {
		n := &spec.Linux.Namespaces[i]
		switch {
		case n.Type != rspec.UserNamespace:
			continue
		case pid > 0:
			return &engine.UserNS{PID: pid}
		case n.Path != "":
			return engine.JoinedUserNS(n.Path, 0)
		}
		return &engine.UserNS{UIDs: idMaps(spec.Linux.UIDMappings), GIDs: idMaps(spec.Linux.GIDMappings)}
	}
	return nil
}

// idMaps returns the ID mappings of an OCI configuration.
func idMaps(list []rspec.LinuxIDMapping) []hostfs.IDMap {
	out := make([]hostfs.IDMap, len(list))
	for i, m := range list {
		out[i] = hostfs.IDMap{Inside: m.ContainerID, Outside: m.HostID, Size: m.Size}
	}
	return out
}
