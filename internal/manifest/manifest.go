// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
)

// Limits on a manifest. The API server accepts a smaller size.
const (
	MaxSize      = 4 << 20 // bytes
	maxDocuments = 1024    // YAML documents in it
	maxPods      = 4096    // pods and pod templates in it
)

// NoPodsError is a valid manifest without a pod.
type NoPodsError string

func (e NoPodsError) Error() string { return string(e) }

// object is any Kubernetes object that holds pods or a pod template.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Namespace    string            `json:"namespace"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Items    []json.RawMessage `json:"items"`    // of a list
	Template json.RawMessage   `json:"template"` // of a PodTemplate
	Spec     struct {
		Template    json.RawMessage `json:"template"` // of most workloads
		JobTemplate struct {
			Spec struct {
				Template json.RawMessage `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"` // of a CronJob
	} `json:"spec"`
}

// podTemplate returns the object's pod template, or nil.
func (o *object) podTemplate() json.RawMessage {
	for _, t := range []json.RawMessage{o.Spec.Template, o.Spec.JobTemplate.Spec.Template, o.Template} {
		if len(t) > 0 && !bytes.Equal(t, []byte("null")) {
			return t
		}
	}
	return nil
}

// Workloads are the kinds that must have a pod template. An object of another kind is a workload if
// it has one.
var Workloads = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "PodTemplate"}

// Parse returns the pods and pod templates of a manifest in the file's order; messages name the
// file. Objects without pods, such as Services, are skipped.
func Parse(file string, data []byte) ([]*Pod, error) {
	fail := func(format string, args ...any) ([]*Pod, error) {
		return nil, fmt.Errorf("read manifest %q: "+format+": %w", append(append([]any{file}, args...), errdefs.ErrInvalidArgument)...)
	}
	docs, err := DecodeYAML(data)
	switch {
	case err != nil:
		return fail("%w", err)
	case len(docs) == 0:
		return fail("%w", NoPodsError("the file is empty: want a Pod or a workload"))
	case len(docs) > maxDocuments:
		return fail("it holds more than %d documents", maxDocuments)
	}
	r := reader{}
	for _, doc := range docs {
		if err := r.object(doc, ""); err != nil {
			return fail("%w", err)
		}
	}
	if len(r.pods) == 0 {
		found := make([]string, len(r.others))
		for i, kind := range r.others {
			found[i] = diag.Quote(kind, diag.Most)
		}
		return fail("%w", NoPodsError(fmt.Sprintf("it holds no pod: kind: found %s, want a Pod, a workload with a pod template (%s) or a List of them",
			strings.Join(found, ", "), strings.Join(Workloads, ", "))))
	}
	return r.pods, nil
}

// reader collects the pods of the objects of a manifest.
type reader struct {
	pods   []*Pod
	others []string // kinds without pods, each once
}

// object adds the pods of one object. parent is the kind of the list it is in, "" for none.
func (r *reader) object(data json.RawMessage, parent string) error {
	var o object
	err := json.Unmarshal(data, &o)
	isWorkload := slices.Contains(Workloads, o.Kind)
	template := o.podTemplate()
	switch {
	case err != nil && (o.Kind == "" || o.Kind == "Pod" || o.Kind == "List" || isWorkload):
		return err
	case o.Kind == "Pod":
		return r.pod(data, &o)
	case isWorkload && template == nil:
		return fmt.Errorf("%s %s: spec.template is missing", o.Kind, diag.Quote(o.Metadata.Name, diag.Most))
	case isWorkload || hasContainers(template):
		return r.pod(template, &o)
	case parent == "" && strings.HasSuffix(o.Kind, "List"):
		itemKind := strings.TrimSuffix(o.Kind, "List") // the items of a typed list need not name their kind
		for _, item := range o.Items {
			if itemKind != "" {
				item = withKind(item, itemKind)
			}
			if err := r.object(item, o.Kind); err != nil {
				return err
			}
		}
	}
	if !slices.Contains(r.others, o.Kind) && len(r.others) < 8 {
		r.others = append(r.others, o.Kind)
	}
	return nil
}

// hasContainers reports whether a template is a pod template.
func hasContainers(template json.RawMessage) bool {
	var t struct {
		Spec struct {
			Containers []json.RawMessage `json:"containers"`
		} `json:"spec"`
	}
	return json.Unmarshal(template, &t) == nil && len(t.Spec.Containers) > 0
}

// withKind returns an item of a typed list with the list's kind, unless it has a kind of its own.
func withKind(item json.RawMessage, kind string) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(item, &o) != nil || o == nil || o["kind"] != nil {
		return item
	}
	o["kind"], _ = json.Marshal(kind)
	item, _ = json.Marshal(o)
	return item
}

// pod adds a Pod, or the pod template of a workload.
func (r *reader) pod(data json.RawMessage, o *object) error {
	p := &Pod{}
	if err := json.Unmarshal(data, p); err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, diag.Quote(o.Metadata.Name, diag.Most), err)
	}
	p.Kind = o.Kind
	if p.Metadata.Name = o.Metadata.Name; p.Metadata.Name == "" {
		p.Metadata.Name = o.Metadata.GenerateName
	}
	p.Metadata.Namespace = o.Metadata.Namespace
	if o.Kind != "Pod" {
		p.WorkloadAnnotations = o.Metadata.Annotations
	}
	if len(p.Spec.Containers) == 0 {
		return fmt.Errorf("%s %s: spec.containers: want at least one", o.Kind, diag.Quote(p.Metadata.Name, diag.Most))
	}
	if len(r.pods) >= maxPods {
		return fmt.Errorf("it holds more than %d pods", maxPods)
	}
	r.pods = append(r.pods, p)
	return nil
}
