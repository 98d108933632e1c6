// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// The API server enforces the admission policies of deploy/admission.
func TestAdmissionPolicies(t *testing.T) {
	k := Start(t)
	dir := filepath.Join(k.Kit().Checkout, "deploy", "admission")
	k.Kubectl("apply", "--kustomize", dir)
	t.Cleanup(func() {
		if _, err := k.Cluster.Kubectl(k.ctx, "delete", "--kustomize", dir); err != nil {
			t.Error(err)
		}
		k.Wait("the policies are not enforced any more", func() error {
			_, err := k.KubectlInput(k.ctx, Pod{Namespace: "default", Name: "p", Annotations: map[string]string{"device.jackfield.dev": nic0}}.Manifest(),
				"create", "--dry-run=server", "--filename=-")
			return err
		})
	})
	if warnings := k.Kubectl("get", "validatingadmissionpolicies", "--output=jsonpath={.items[*].status.typeChecking.expressionWarnings}"); warnings != "" {
		t.Errorf("the API server warns about types: %s", warnings)
	}
	allowed := k.Namespace("fast-admitted", map[string]string{"jackfield.dev/devices": "allowed"})
	other := k.Namespace("fast-unlabelled", nil)

	create := func(namespace, name string, annotations map[string]string) error {
		t.Helper()
		_, err := k.KubectlInput(k.ctx, Pod{Namespace: namespace, Name: name, Annotations: annotations}.Manifest(), "create", "--dry-run=server", "--filename=-")
		return err
	}
	const notLabelled = "an administrator can allow it with kubectl label namespace fast-unlabelled jackfield.dev/devices=allowed"
	errNotYet := errors.New("a pod that they deny is accepted")
	// The API server begins to enforce a policy some moments after it was created.
	k.Wait("the policies are enforced", func() error {
		if err := create(other, "early", map[string]string{deviceKey: nic0}); err == nil || !strings.Contains(err.Error(), notLabelled) {
			return errNotYet
		}
		if err := create(allowed, "early", map[string]string{"device.jackfield.dev": nic0}); err == nil {
			return errNotYet
		}
		return nil
	})
	for _, c := range []struct {
		namespace string
		key, text string
		denial    string
	}{
		{namespace: allowed, key: deviceKey, text: nic0},
		{namespace: allowed, key: deviceKey + "/container.main", text: nic0},
		{namespace: other, key: "example.com/note", text: "x"},
		{allowed, "device.jackfield.dev", nic0, "the annotations are devices.jackfield.dev and networks.jackfield.dev"},
		{allowed, "Devices.jackfield.dev", nic0, "the annotations are devices.jackfield.dev and networks.jackfield.dev"},
		{allowed, deviceKey + "/container.mian", nic0, "the pod has no such container; it has main"},
		{allowed, deviceKey, strings.Repeat("x", 65537), "an annotation is longer than 65536 bytes"},
		{allowed, "networks.jackfield.dev", " ", "networks.jackfield.dev is empty"},
		{other, deviceKey, nic0, notLabelled},
		{other, "cdi.k8s.io/x", nic0, notLabelled},
		{other, "devices.noderesource.dev", "x", notLabelled},
	} {
		err := create(c.namespace, "p", map[string]string{c.key: c.text})
		switch {
		case c.denial == "" && err != nil:
			t.Errorf("%s in %s: %v", c.key, c.namespace, err)
		case c.denial != "" && (err == nil || !strings.Contains(err.Error(), c.denial)):
			t.Errorf("%s in %s: %v, want %q", c.key, c.namespace, err, c.denial)
		}
	}

	// Annotations of a running pod: Jackfield's are checked, others may change.
	k.RunPod(Pod{Namespace: allowed, Name: "router", Annotations: map[string]string{deviceKey: nic0}})
	k.Kubectl("--namespace", allowed, "annotate", "pod", "router", "example.com/note=x")
	_, err := k.Cluster.Kubectl(k.ctx, "--namespace", allowed, "annotate", "--overwrite", "pod", "router", "network.jackfield.dev=auto")
	if err == nil || !strings.Contains(err.Error(), "the annotations are devices.jackfield.dev") {
		t.Errorf("a wrong annotation of a running pod: %v", err)
	}
}

// The API server makes pods that request devices or networks wait for the plugin, and leaves other pods
// as they are.
func TestPodsAreMadeToRequirePlugin(t *testing.T) {
	k := Start(t)
	const required = "required-plugins.noderesource.dev"
	dir := filepath.Join(k.Kit().Checkout, "deploy", "admission-require")
	namespace := k.Namespace("fast-required", nil)
	requirement := func(namespace string, annotations map[string]string) (string, error) {
		return k.KubectlInput(k.ctx, Pod{Namespace: namespace, Name: "p", Annotations: annotations}.Manifest(), "create", "--dry-run=server", "--filename=-",
			`--output=go-template={{range $key, $value := .metadata.annotations}}{{if eq $key "`+required+`"}}{{$value}}{{end}}{{end}}`)
	}
	wait := func(what, want string) {
		k.Wait(what, func() error {
			if text, err := requirement(namespace, map[string]string{deviceKey: nic0}); err != nil || text != want {
				return fmt.Errorf("the pod requires %q: %v", text, err)
			}
			return nil
		})
	}
	k.Kubectl("apply", "--kustomize", dir)
	t.Cleanup(func() {
		if _, err := k.Cluster.Kubectl(k.ctx, "delete", "--kustomize", dir); err != nil {
			t.Error(err)
		}
		wait("the policy changes no pod any more", "")
	})
	wait("the policy is in force", "[jackfield]")
	for _, c := range []struct {
		namespace   string
		annotations map[string]string
		want        string
	}{
		{namespace, map[string]string{deviceKey + "/container.main": nic0}, "[jackfield]"},
		{namespace, map[string]string{"networks.jackfield.dev": "auto"}, "[jackfield]"},
		{namespace, map[string]string{"cdi.k8s.io/x": nic0}, "[jackfield]"},
		{namespace, map[string]string{"k8s.v1.cni.cncf.io/networks": "fast"}, "[jackfield]"},
		{namespace, map[string]string{"example.com/note": "x"}, ""},
		{namespace, nil, ""},
		{namespace, map[string]string{deviceKey: nic0, required: "[other]"}, "[other]"},
		{namespace, map[string]string{deviceKey: nic0, required + "/container.main": "[other]"}, ""},
		{"kube-system", map[string]string{deviceKey: nic0}, ""},
	} {
		if text, err := requirement(c.namespace, c.annotations); err != nil || text != c.want {
			t.Errorf("%v in %s: the pod requires %q, want %q: %v", c.annotations, c.namespace, text, c.want, err)
		}
	}
}
