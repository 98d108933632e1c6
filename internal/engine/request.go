// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// Request is one container about to be created, as an adapter sees it.
type Request struct {
	SandboxID, ContainerID string
	Namespace, Pod, PodUID string
	Container              string // its name in the pod
	RuntimeHandler         string
	HandlerUnknown         bool              // the runtime handler is unknown
	LabelsUnknown          bool              // the labels of the pod are unknown
	Image                  string            // as the runtime names it; "" if unknown
	Labels, Annotations    map[string]string // of the pod
	User                   *User             // nil if unknown
	UserNS                 *UserNS           // nil if it is the host's
	// UserNSUnknown is set for a manifest whose pod has a user namespace: the node decides on its mappings.
	UserNSUnknown bool
	Have          edit.Existing // of the container without Jackfield
	// InheritedMemlock returns the limit of locked memory of the process from which the container inherits its limits;
	// nil if it is unknown.
	InheritedMemlock     func() *edit.Rlimit
	HostIPC              bool              // the pod shares the host's IPC namespace
	Args                 []string          // of its process
	ContainerAnnotations map[string]string // its own, in addition to the pod's
	CDIDevices           []string          // qualified names that the adapter passes
	// CanDeliver returns why the adapter cannot deliver the set's edits of a request (by
	// Origin.Request), or nil. It is nil for an adapter that delivers everything. It is called
	// for optional requests, which are then skipped; for required ones the adapter itself fails.
	CanDeliver func(set *edit.Set, request string) error
	// LimitMemlock returns the limit of locked memory that the adapter can set at most, and why it is lower than the
	// wanted one; nil for an adapter that can set any.
	LimitMemlock func(wanted quantity.Memory) (possible quantity.Memory, why string)
	// FromManifest is set for an Explain of a manifest, which does not have the variables that the kubelet adds. Without
	// a kubelet, Explain does not check resources. Without a sandbox, it does not check the networks of an annotation.
	FromManifest bool
	// HasSocket reports whether a running container has a socket of the host, by its root,
	// symlinks resolved, and the path below it; nil for none. A running container keeps every
	// socket that it has.
	HasSocket func(root, rel string) bool
}

// User is the container's process user, as it is numbered in its user namespace.
type User struct{ UID, GID uint32 }

// Name is the container's name for messages.
func (r *Request) Name() string {
	return strings.Trim(r.Namespace+"/"+r.Pod+"/"+r.Container, "/")
}

// HasDeviceMetadata reports whether the container has a mount of metadata of a resource claim. It
// reads nothing.
func (r *Request) HasDeviceMetadata() bool { return len(query(r).MetadataFiles) > 0 }

// MarkRuntimeMounts marks the mounts that the runtime made of its own accord as replaceable by CDI mounts. It is for an
// adapter that can remove a mount.
func (r *Request) MarkRuntimeMounts() {
	for i := range r.Have.Mounts {
		if m := &r.Have.Mounts[i]; isRuntimeMount(r, m) {
			r.Have.Replaceable = append(r.Have.Replaceable, m.Destination)
		}
	}
}

// Subject returns the request's container as the subject of policy.
func Subject(req *Request) policy.Subject {
	return policy.Subject{Namespace: req.Namespace, Pod: req.Pod, Container: req.Container, Image: req.Image,
		Labels: req.Labels, LabelsUnknown: req.LabelsUnknown,
		RuntimeHandler: req.RuntimeHandler, HandlerUnknown: req.HandlerUnknown}
}

// query returns the request's container as a query for its attachments.
func query(req *Request) attachment.Query {
	q := attachment.Query{
		SandboxID: req.SandboxID, Namespace: req.Namespace, Pod: req.Pod, PodUID: req.PodUID, Container: req.Container,
		Networks: req.Annotations[attachment.NetworksAnnotation], Env: req.Have.Env,
	}
	for _, m := range req.Have.Mounts {
		if attachment.IsMetadataMount(m.Destination) {
			q.MetadataFiles = append(q.MetadataFiles, m.Source)
		}
	}
	return q
}
