// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Object is one object in the API's own type.
type Object interface {
	meta.Object
	GetObjectKind() schema.ObjectKind
}

// PodMonitor has the fields of the Prometheus operator's type that these tests use.
type PodMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector            meta.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port        string `json:"port"`
			Interval    string `json:"interval,omitempty"`
			Relabelings []struct {
				SourceLabels []string `json:"sourceLabels,omitempty"`
				TargetLabel  string   `json:"targetLabel"`
				Replacement  string   `json:"replacement,omitempty"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// PrometheusRule is the Prometheus operator's type. Prometheus' own tool checks the rules, in test/monitoring.
type PrometheusRule struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for,omitempty"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

// Decode decodes the documents of a YAML stream. An unknown field and an unexpected kind are errors.
func Decode(stream []byte) ([]Object, error) {
	var objects []Object
	for _, doc := range documents(stream) {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			return nil, err
		}
		o, err := empty(kind)
		if err != nil {
			return nil, err
		}
		if err := decode(doc, o); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// decode decodes a document as the API server does, which receives JSON. yaml.Unmarshal would convert
// a number to a string if the type requires one, and the server does not.
func decode(doc []byte, o Object) error {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(o)
}

func empty(t meta.TypeMeta) (Object, error) {
	switch t.APIVersion + " " + t.Kind {
	case "v1 Namespace":
		return new(core.Namespace), nil
	case "v1 ServiceAccount":
		return new(core.ServiceAccount), nil
	case "v1 ConfigMap":
		return new(core.ConfigMap), nil
	case "v1 Pod":
		return new(core.Pod), nil
	case "apps/v1 DaemonSet":
		return new(apps.DaemonSet), nil
	case "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy":
		return new(admission.ValidatingAdmissionPolicy), nil
	case "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding":
		return new(admission.ValidatingAdmissionPolicyBinding), nil
	case "networking.k8s.io/v1 NetworkPolicy":
		return new(networking.NetworkPolicy), nil
	case "monitoring.coreos.com/v1 PodMonitor":
		return new(PodMonitor), nil
	case "monitoring.coreos.com/v1 PrometheusRule":
		return new(PrometheusRule), nil
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return new(rbac.RoleBinding), nil
	}
	return nil, fmt.Errorf("found %s %q: no such object is expected", t.APIVersion, t.Kind)
}

var separator = regexp.MustCompile(`(?m)^---[ \t]*(#.*)?$`)

// documents splits a stream and drops documents without content.
func documents(stream []byte) [][]byte {
	var docs [][]byte
	for _, doc := range separator.Split(string(stream), -1) {
		var content any
		if err := yaml.Unmarshal([]byte(doc), &content); err != nil || content != nil {
			docs = append(docs, bytes.TrimSpace([]byte(doc)))
		}
	}
	return docs
}
