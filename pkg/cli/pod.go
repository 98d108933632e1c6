// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// maxManifest bounds a pod manifest, in bytes: what the API server takes, and
// more.
const maxManifest = 4 << 20

// pod is what a Pod manifest (core/v1) says that matters here.
type pod struct {
	Kind     string `json:"kind"`
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

// documents finds a second YAML document, of which the parser would say nothing.
var documents = lazy(`(?m)^[^-#\s][^\n]*\n(?s:.*?)^---(?:\s|$)`)

// readManifest reads a file of the caller's own, or standard input for "-".
func readManifest(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return hostfs.ReadAtMost(stdin, maxManifest)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	return hostfs.ReadAtMost(f, maxManifest)
}

// readPod reads a manifest from a file, or from standard input for "-".
func readPod(file string, stdin io.Reader) (*pod, error) {
	data, err := readManifest(file, stdin)
	if err != nil {
		return nil, fmt.Errorf("read pod manifest %q: %w", file, err)
	}
	return parsePod(file, data)
}

// parsePod reads a manifest; file is its name, for messages.
func parsePod(file string, data []byte) (*pod, error) {
	if documents().FindIndex(data) != nil {
		return nil, fmt.Errorf("read pod manifest %q: it holds several documents, want one Pod: %w", file, errdefs.ErrInvalidArgument)
	}
	p := &pod{}
	if err := yaml.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("read pod manifest %q: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	if p.Kind != "Pod" {
		return nil, &hinted{
			err:  fmt.Errorf("read pod manifest %q: kind: found %s, want Pod: %w", file, quoted(p.Kind), errdefs.ErrInvalidArgument),
			hint: "of a workload, take one of its pods: kubectl get pod NAME -o yaml | jackfield explain --pod -",
		}
	}
	if len(p.Spec.Containers) == 0 {
		return nil, fmt.Errorf("read pod manifest %q: spec.containers: want at least one: %w", file, errdefs.ErrInvalidArgument)
	}
	if p.Metadata.Namespace == "" {
		p.Metadata.Namespace = "default"
	}
	if p.Metadata.Name == "" {
		p.Metadata.Name = p.Metadata.GenerateName
	}
	return p, nil
}

// requests are the pod's containers as an adapter would see them: init
// containers first, each as far as its manifest tells.
func (p *pod) requests(sandboxID string) []*resolve.Request {
	var out []*resolve.Request
	for _, c := range append(append([]container(nil), p.Spec.InitContainers...), p.Spec.Containers...) {
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
