// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// podManifest is the part of a pod that explain reads, see manifest.Pod. Nothing else is sent to the plugin's pod: the
// rest of a pod, such as the values of variables, arguments and probes, can contain secrets.
type podManifest struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		RuntimeClassName    string              `json:"runtimeClassName,omitempty"`
		SecurityContext     json.RawMessage     `json:"securityContext,omitempty"`
		InitContainers      []containerManifest `json:"initContainers,omitempty"`
		Containers          []containerManifest `json:"containers,omitempty"`
		EphemeralContainers []containerManifest `json:"ephemeralContainers,omitempty"`
		ResourceClaims      json.RawMessage     `json:"resourceClaims,omitempty"`
	} `json:"spec"`
	Status struct {
		ResourceClaimStatuses json.RawMessage `json:"resourceClaimStatuses,omitempty"`
	} `json:"status"`
}

type metadata struct {
	Name         string            `json:"name"`
	GenerateName string            `json:"generateName,omitempty"`
	Namespace    string            `json:"namespace"`
	UID          string            `json:"uid,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// workloadManifest is the part of an object with a pod template that explain reads.
type workloadManifest struct {
	APIVersion string       `json:"apiVersion,omitempty"`
	Kind       string       `json:"kind,omitempty"`
	Metadata   metadata     `json:"metadata"`
	Template   *podManifest `json:"template,omitempty"` // of a PodTemplate
	Spec       struct {
		Template    *podManifest `json:"template,omitempty"`
		JobTemplate *jobTemplate `json:"jobTemplate,omitempty"` // of a CronJob
	} `json:"spec"`
}

type jobTemplate struct {
	Spec struct {
		Template *podManifest `json:"template,omitempty"`
	} `json:"spec"`
}

type containerManifest struct {
	Name            string          `json:"name"`
	RestartPolicy   string          `json:"restartPolicy,omitempty"`
	Image           string          `json:"image,omitempty"`
	Command         []string        `json:"command,omitempty"`
	Env             []variable      `json:"env,omitempty"`
	VolumeMounts    []volumeMount   `json:"volumeMounts,omitempty"`
	Resources       json.RawMessage `json:"resources,omitempty"`
	SecurityContext json.RawMessage `json:"securityContext,omitempty"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

type volumeMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

const (
	// lastApplied is kubectl's copy of the whole manifest.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// allocatedDevices begins the variables in which device plugins name a container's devices.
	allocatedDevices = "PCIDEVICE_"
)

// reduceManifest returns the part of a pod's manifest that explain reads.
func reduceManifest(pod string) (string, error) {
	var p podManifest
	if err := json.Unmarshal([]byte(pod), &p); err != nil {
		return "", &failure{text: "read the answer of kubectl: " + err.Error(), code: exitError}
	}
	p.reduce()
	data, err := json.Marshal(&p)
	return string(data), err
}

// reduceManifests returns a List with the parts of objects that explain reads. It omits objects without a pod template,
// except resource claims and networks, which explain reads as a whole.
func reduceManifests(objects io.Reader) (string, error) {
	list := struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []any  `json:"items"`
	}{"v1", "List", []any{}}
	for decoder := json.NewDecoder(objects); ; {
		var object json.RawMessage
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			list.Items, err = appendReduced(list.Items, object)
		}
		if err != nil {
			return "", &failure{text: "read the objects from kubectl: " + err.Error(), code: exitError}
		}
	}
	data, err := json.Marshal(list)
	return string(data), err
}

// appendReduced appends the part of an object that explain reads. For a List, it appends the parts of the items.
func appendReduced(items []any, object json.RawMessage) ([]any, error) {
	var header struct {
		APIVersion, Kind string
		Items            []json.RawMessage
	}
	if err := json.Unmarshal(object, &header); err != nil {
		return nil, err
	}
	var err error
	switch header.Kind {
	case "List":
		for _, item := range header.Items {
			if items, err = appendReduced(items, item); err != nil {
				return nil, err
			}
		}
		return items, nil
	case "Pod":
		var p podManifest
		err = json.Unmarshal(object, &p)
		p.reduce()
		return append(items, &p), err
	// These objects hold no containers, and so no variables or arguments.
	case "ResourceClaim", "ResourceClaimTemplate", "NetworkAttachmentDefinition":
		var whole map[string]any
		err = json.Unmarshal(object, &whole)
		removeLastApplied(whole)
		return append(items, whole), err
	}
	var w workloadManifest
	err = json.Unmarshal(object, &w)
	isBuiltIn := strings.HasPrefix(header.APIVersion, "apps/") || strings.HasPrefix(header.APIVersion, "batch/")
	if err != nil && !isBuiltIn {
		return items, nil // a custom resource, whose spec.template is not a pod template
	}
	if w.reduce() {
		items = append(items, &w)
	}
	return items, err
}

// removeLastApplied removes kubectl's copy of an object from its annotations.
func removeLastApplied(object map[string]any) {
	if meta, ok := object["metadata"].(map[string]any); ok {
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			delete(annotations, lastApplied)
		}
	}
}

// reduce reduces the pod templates of the object. It reports whether one of them has containers.
func (w *workloadManifest) reduce() bool {
	delete(w.Metadata.Annotations, lastApplied)
	templates := []*podManifest{w.Template, w.Spec.Template}
	if w.Spec.JobTemplate != nil {
		templates = append(templates, w.Spec.JobTemplate.Spec.Template)
	}
	hasContainers := false
	for _, t := range templates {
		if t != nil {
			t.reduce()
			hasContainers = hasContainers || len(t.Spec.Containers) > 0
		}
	}
	return hasContainers
}

// reduce removes kubectl's copy of the manifest, and the secrets of the containers.
func (p *podManifest) reduce() {
	delete(p.Metadata.Annotations, lastApplied)
	for _, list := range [][]containerManifest{p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers} {
		for i := range list {
			list[i].reduce()
		}
	}
}

// reduce removes the values of variables, and all arguments: hooks are matched with the program only.
func (c *containerManifest) reduce() {
	if len(c.Command) > 0 {
		c.Command = c.Command[:1]
	}
	for i := range c.Env {
		if !strings.HasPrefix(c.Env[i].Name, allocatedDevices) {
			c.Env[i].Value = ""
		}
	}
}
