// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Limits on a manifest. The API server accepts a smaller size.
const (
	MaxSize      = 64 << 20 // bytes
	maxDocuments = 1 << 16  // YAML documents in it
	maxPods      = 4096     // pods and pod templates in it
	maxOthers    = 8        // other kinds that a message names
)

// NoPodsError is a valid manifest without a pod. It may have other objects.
type NoPodsError string

func (e NoPodsError) Error() string { return string(e) }

// object is any Kubernetes object.
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

// title names the object for messages.
func (o *object) title() string {
	return o.Kind + " " + diag.Quote(cmp.Or(o.Metadata.Name, o.Metadata.GenerateName))
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
var Workloads = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job",
	"CronJob", "PodTemplate"}

// Parse returns the objects of a manifest; messages name the file. Objects of other kinds, such as Services,
// are skipped. Networks and claims that name no namespace are in the given one. Without a pod the error is a
// NoPodsError, and the other objects are returned with it.
func Parse(file string, data []byte, namespace string) (Objects, error) {
	o := Objects{Networks: map[string]Network{}, Claims: map[string]Claim{}, namespace: namespace}
	docs, err := DecodeYAML(data)
	if err == nil && len(docs) > maxDocuments {
		err = fmt.Errorf("it holds more than %d documents: split it into several files", maxDocuments)
	}
	if err == nil {
		err = o.addAll(docs, "")
	}
	if err != nil {
		return Objects{}, fmt.Errorf("read manifest %q: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	if len(o.Pods) == 0 {
		err = fmt.Errorf("read manifest %q: %w: %w", file, o.noPods(), errdefs.ErrInvalidArgument)
	}
	return o, err
}

// noPods returns an error that names the content of a manifest without pods.
func (o *Objects) noPods() NoPodsError {
	if len(o.others) == 0 {
		return "the file is empty: must hold a Pod or a workload"
	}
	return NoPodsError(fmt.Sprintf("it holds no pod: kind: invalid value %s: must be a Pod, a workload with a pod "+
		"template (%s) or a List of them",
		strings.Join(o.others, ", "), strings.Join(Workloads, ", ")))
}

// add adds one object. parent is the kind of the list it is in, "" for none. The items of a typed list need
// not name their kind. A List may hold typed lists, and lists are not nested deeper.
func (o *Objects) add(data json.RawMessage, parent string) error {
	var x object
	err := json.Unmarshal(data, &x)
	x.Kind = cmp.Or(x.Kind, strings.TrimSuffix(parent, "List"))
	isWorkload := slices.Contains(Workloads, x.Kind)
	template := x.podTemplate()
	// A pod, a pod template and the objects that a pod refers to are kept; other objects are ignored.
	switch {
	case err != nil && (x.Kind == "" || x.Kind == "Pod" || x.Kind == "List" || isWorkload):
		return err
	case x.Kind == "Pod":
		return o.addPod(data, &x)
	case isWorkload && template == nil:
		return fmt.Errorf("%s: spec.template is missing", x.title())
	case isWorkload || hasContainers(template):
		return o.addPod(template, &x)
	case x.Kind == networkKind:
		o.addNetwork(data, &x)
		err = nil
	case x.Kind == ResourceClaim || x.Kind == ResourceClaimTemplate:
		err = o.addClaim(data, &x)
	case (parent == "" || parent == "List" && x.Kind != "List") && strings.HasSuffix(x.Kind, "List"):
		err = o.addAll(x.Items, x.Kind)
	default:
		err = nil // an object of another kind has other types
	}
	if kind := diag.Quote(x.Kind); !slices.Contains(o.others, kind) && len(o.others) < maxOthers {
		o.others = append(o.others, kind)
	}
	return err
}

// addAll adds the documents of a manifest, or the items of a list, each as add does.
func (o *Objects) addAll(all []json.RawMessage, parent string) error {
	for _, data := range all {
		if err := o.add(data, parent); err != nil {
			return err
		}
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

// addPod adds a Pod, or the pod template of a workload.
func (o *Objects) addPod(data json.RawMessage, x *object) error {
	p := &Pod{}
	if err := json.Unmarshal(data, p); err != nil {
		return fmt.Errorf("%s: %w", x.title(), err)
	}
	p.Kind = x.Kind
	p.Metadata.Name, p.Metadata.Namespace = cmp.Or(x.Metadata.Name, x.Metadata.GenerateName), x.Metadata.Namespace
	if x.Kind != "Pod" {
		p.WorkloadAnnotations = x.Metadata.Annotations
	}
	if len(p.Spec.Containers) == 0 {
		return fmt.Errorf("%s: spec.containers: must have at least one container", x.title())
	}
	if len(o.Pods) >= maxPods {
		return fmt.Errorf("it holds more than %d pods", maxPods)
	}
	o.Pods = append(o.Pods, p)
	return nil
}
