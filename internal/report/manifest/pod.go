// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
)

// Pod is the part of a Pod (core/v1), or of a workload's pod template, that decides which
// devices its containers get.
type Pod struct {
	Kind     string `json:"kind"` // of the workload whose template it is
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HostUsers           *bool           `json:"hostUsers"`
		RuntimeClassName    string          `json:"runtimeClassName"`
		AutomountToken      *bool           `json:"automountServiceAccountToken"`
		SecurityContext     securityContext `json:"securityContext"`
		InitContainers      []container     `json:"initContainers"`
		Containers          []container     `json:"containers"`
		EphemeralContainers []container     `json:"ephemeralContainers"` // of kubectl debug
		ResourceClaims      []PodClaim      `json:"resourceClaims"`
	} `json:"spec"`
	Status struct {
		ResourceClaimStatuses []struct {
			Name              string `json:"name"` // in the spec
			ResourceClaimName string `json:"resourceClaimName"`
		} `json:"resourceClaimStatuses"`
	} `json:"status"`

	File string `json:"-"` // that the pod is from, where a command reads several
	// WorkloadAnnotations are the annotations of the workload itself, which its pods do not get.
	WorkloadAnnotations map[string]string `json:"-"`
}

type container struct {
	Name string `json:"name"`
	// RestartPolicy is Always for an init container that runs beside the others.
	RestartPolicy string   `json:"restartPolicy"`
	Image         string   `json:"image"`
	Command       []string `json:"command"`
	Args          []string `json:"args"`
	Env           []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	VolumeMounts []struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
	} `json:"volumeMounts"`
	Resources struct {
		Claims []ClaimUse                 `json:"claims"`
		Limits map[string]json.RawMessage `json:"limits"`
	} `json:"resources"`
	SecurityContext securityContext `json:"securityContext"`
}

type securityContext struct {
	RunAsUser          *uint32  `json:"runAsUser"`
	RunAsGroup         *uint32  `json:"runAsGroup"`
	SupplementalGroups []uint32 `json:"supplementalGroups"` // of a pod
	FSGroup            *uint32  `json:"fsGroup"`            // of a pod
}

// groups returns the supplementary groups that the security context adds to the groups of the containers' users.
func (s *securityContext) groups() []uint32 {
	groups := slices.Clone(s.SupplementalGroups)
	if s.FSGroup != nil {
		groups = append(groups, *s.FSGroup)
	}
	return groups
}

// Title names the pod, or the workload whose template it is, for messages.
func (p *Pod) Title() string {
	return p.Kind + " " + strings.Trim(p.Metadata.Namespace+"/"+p.Metadata.Name, "/")
}

// Workload returns the title of the workload whose template the pod is, "" for a Pod.
func (p *Pod) Workload() string {
	if p.Kind == "Pod" {
		return ""
	}
	return p.Title()
}

// containers returns the pod's containers in the order of their creation.
func (p *Pod) containers() []container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers)
}

// ContainerNames returns the names of the pod's containers.
func (p *Pod) ContainerNames() []string {
	var names []string
	for _, c := range p.containers() {
		names = append(names, c.Name)
	}
	return names
}

// HugePages returns the sum of a container's hugepages-* limits.
func (p *Pod) HugePages(name string) (sum quantity.Memory) {
	for _, c := range p.containers() {
		for resource, value := range c.Resources.Limits {
			if size, ok := quantity.ParseMemory(strings.Trim(string(value), `"`)); ok && c.Name == name &&
				strings.HasPrefix(resource, "hugepages-") {
				sum += size
			}
		}
	}
	return sum
}

// EndsBeforeOthers reports whether a container has ended when the pod's other containers are created.
func (p *Pod) EndsBeforeOthers(name string) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c container) bool {
		return c.Name == name &&
			c.RestartPolicy != "Always"
	})
}

// Requests returns the pod's containers as an adapter would see them, in the order of their creation, as far
// as the manifest says. A name selects one container, "" all.
func (p *Pod) Requests(sandboxID, name string) []*engine.Request {
	var out []*engine.Request
	for _, c := range p.containers() {
		if name != "" && name != c.Name {
			continue
		}
		r := &engine.Request{
			SandboxID: sandboxID, ContainerID: "CONTAINER-ID",
			Namespace: p.Metadata.Namespace, Pod: p.Metadata.Name, PodUID: p.Metadata.UID,
			Container: c.Name, Image: c.Image, RuntimeHandler: p.Spec.RuntimeClassName,
			Labels: p.Metadata.Labels, Annotations: p.Metadata.Annotations,
			User: effectiveUser(c.SecurityContext, p.Spec.SecurityContext),
		}
		r.UserNSUnknown = p.Spec.HostUsers != nil && !*p.Spec.HostUsers
		if len(c.Command) > 0 { // else the image has the command
			r.Args = slices.Concat(c.Command, c.Args)
		}
		for _, e := range c.Env {
			r.Have.Env = append(r.Have.Env, e.Name+"="+e.Value)
		}
		for _, m := range c.VolumeMounts {
			r.Have.Mounts = append(r.Have.Mounts,
				edit.Mount{Destination: m.MountPath, Source: "volume " + m.Name, Type: "bind"})
		}
		r.Have.GIDs = p.Spec.SecurityContext.groups()
		if r.User != nil {
			r.Have.GIDs = append(r.Have.GIDs, r.User.GID)
		}
		addImpliedMounts(&r.Have, p.Spec.AutomountToken == nil || *p.Spec.AutomountToken)
		out = append(out, r)
	}
	return out
}

// addImpliedMounts adds the mounts that every container of Kubernetes has beside the volumes of its manifest. A CDI
// mount replaces those of the runtime, and conflicts with those of the kubelet.
func addImpliedMounts(have *edit.Existing, withToken bool) {
	for _, destination := range []string{"/dev/shm", "/etc/hostname", "/etc/resolv.conf"} {
		if addImpliedMount(have, destination, "the runtime's own mount") {
			have.Replaceable = append(have.Replaceable, destination)
		}
	}
	addImpliedMount(have, "/etc/hosts", "the kubelet's own mount")
	addImpliedMount(have, "/dev/termination-log", "the kubelet's own mount")
	if withToken {
		addImpliedMount(have, "/var/run/secrets/kubernetes.io/serviceaccount", "the service account's token")
	}
}

// addImpliedMount adds a mount if no volume is mounted at its destination.
func addImpliedMount(have *edit.Existing, destination, source string) bool {
	if slices.ContainsFunc(have.Mounts, func(m edit.Mount) bool { return edit.EqualClean(m.Destination, destination) }) {
		return false
	}
	have.Mounts = append(have.Mounts, edit.Mount{Destination: destination, Source: source})
	return true
}

// effectiveUser returns the user that the manifest sets, the container's before the pod's; nil where the
// image decides.
func effectiveUser(own, pods securityContext) *engine.User {
	uid, gid := cmp.Or(own.RunAsUser, pods.RunAsUser), cmp.Or(own.RunAsGroup, pods.RunAsGroup, new(uint32))
	if uid == nil {
		return nil
	}
	return &engine.User{UID: *uid, GID: *gid}
}
