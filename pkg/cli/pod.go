// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// pod is what a Pod manifest (core/v1) says that matters here.
type pod struct {
	Kind     string `json:"kind"` // of the workload whose template it is
	Metadata struct {
		Name         string            `json:"name"`
		Namespace    string            `json:"namespace"`
		UID          string            `json:"uid"`
		GenerateName string            `json:"generateName"`
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		RuntimeClassName string          `json:"runtimeClassName"`
		SecurityContext  securityContext `json:"securityContext"`
		InitContainers   []container     `json:"initContainers"`
		Containers       []container     `json:"containers"`
	} `json:"spec"`

	workloadAnnotations map[string]string // of the workload, not of its pods
}

type container struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	VolumeMounts []struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
	} `json:"volumeMounts"`
	SecurityContext securityContext `json:"securityContext"`
}

type securityContext struct {
	RunAsUser  *uint32 `json:"runAsUser"`
	RunAsGroup *uint32 `json:"runAsGroup"`
}

// title names the pod, or the workload whose template it is, for messages.
func (p *pod) title() string {
	return p.Kind + " " + strings.Trim(p.Metadata.Namespace+"/"+p.Metadata.Name, "/")
}

// workload is the title of the workload whose template the pod is, "" for a Pod.
func (p *pod) workload() string {
	if p.Kind == "Pod" {
		return ""
	}
	return p.title()
}

// containers are the pod's containers in the order in which they are created.
func (p *pod) containers() []container {
	return append(append([]container(nil), p.Spec.InitContainers...), p.Spec.Containers...)
}

// containerNames are the names of the pod's containers.
func (p *pod) containerNames() []string {
	var names []string
	for _, c := range p.containers() {
		names = append(names, c.Name)
	}
	return names
}

// requests are the pod's containers as an adapter would see them: init
// containers first, each as far as its manifest tells.
func (p *pod) requests(sandboxID string) []*resolve.Request {
	var out []*resolve.Request
	for _, c := range p.containers() {
		r := &resolve.Request{
			SandboxID: sandboxID, ContainerID: "CONTAINER-ID", Namespace: p.Metadata.Namespace, Pod: p.Metadata.Name, PodUID: p.Metadata.UID,
			Container: c.Name, Image: c.Image, RuntimeHandler: p.Spec.RuntimeClassName, Labels: p.Metadata.Labels, Annotations: p.Metadata.Annotations,
			User: user(c.SecurityContext, p.Spec.SecurityContext),
		}
		if len(c.Command) > 0 { // else the image says what is run
			r.Args = append(append([]string(nil), c.Command...), c.Args...)
		}
		for _, e := range c.Env {
			r.Have.Env = append(r.Have.Env, e.Name+"="+e.Value)
		}
		for _, m := range c.VolumeMounts {
			r.Have.Mounts = append(r.Have.Mounts, edits.Mount{Destination: m.MountPath, Source: "volume " + m.Name, Type: "bind"})
		}
		out = append(out, r)
	}
	return out
}

// user is the user that the manifest gives, the container's before the pod's;
// nil when the image decides.
func user(own, pods securityContext) *resolve.User {
	if own.RunAsUser == nil {
		own.RunAsUser = pods.RunAsUser
	}
	if own.RunAsGroup == nil {
		own.RunAsGroup = pods.RunAsGroup
	}
	if own.RunAsUser == nil {
		return nil
	}
	u := &resolve.User{UID: *own.RunAsUser}
	if own.RunAsGroup != nil {
		u.GID = *own.RunAsGroup
	}
	return u
}
