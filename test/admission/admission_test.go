// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"maps"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// load reads a policy and its binding, and compiles the policy.
func load(t *testing.T, file string) validating.Validator {
	t.Helper()
	data, err := os.ReadFile("../../deploy/admission/" + file)
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(data, []byte("\n---\n"))
	if len(documents) != 2 {
		t.Fatalf("%d documents", len(documents))
	}
	var (
		policy  admissionv1.ValidatingAdmissionPolicy
		binding admissionv1.ValidatingAdmissionPolicyBinding
	)
	if err := yaml.UnmarshalStrict(documents[0], &policy); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(documents[1], &binding); err != nil {
		t.Fatal(err)
	}
	if policy.Kind != "ValidatingAdmissionPolicy" || binding.Kind != "ValidatingAdmissionPolicyBinding" || binding.Spec.PolicyName != policy.Name {
		t.Fatalf("%s is bound to %s", binding.Spec.PolicyName, policy.Name)
	}
	return compile(t, &policy)
}

// compile does what the API server does with a policy.
func compile(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	optional := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []plugincel.NamedExpressionAccessor
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, optional, environment.StoredExpressions)
	var conditions, validations, messages []plugincel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message plugincel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	compiled := func(list []plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
		for _, e := range list {
			if e == nil {
				continue
			}
			if r := compiler.CompileCELExpression(e, optional, environment.NewExpressions); r.Error != nil {
				t.Fatalf("%s: %v", e.GetExpression(), r.Error)
			}
		}
		return compiler.CompileCondition(list, optional, environment.StoredExpressions)
	}
	matcher := matchconditions.NewMatcher(compiled(conditions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	return validating.NewValidator(compiled(validations), matcher, compiled(nil), compiled(messages), policy.Spec.FailurePolicy, nil)
}

func pod(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "fwd-0", Namespace: "telco", Annotations: annotations},
		Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "setup"}},
			Containers: []corev1.Container{{Name: "app"}, {Name: "side.car"}}},
	}
}

// denials returns the messages with which the validator denies the creation of a pod or, if was is set, its update.
func denials(t *testing.T, v validating.Validator, namespaceLabels map[string]string, is, was *corev1.Pod) []string {
	t.Helper()
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	operation := admission.Create
	attr := &admission.VersionedAttributes{VersionedKind: gvk}
	attr.VersionedObject = admission.NewLazyObject(is)
	if was != nil {
		operation = admission.Update
		attr.VersionedOldObject = admission.NewLazyObject(was)
		attr.Attributes = admission.NewAttributesRecord(is, was, gvk, is.Namespace, is.Name, gvr, "", operation, nil, false, nil)
	} else {
		attr.Attributes = admission.NewAttributesRecord(is, nil, gvk, is.Namespace, is.Name, gvr, "", operation, nil, false, nil)
	}
	return validate(v, attr, namespaceLabels)
}

// validate returns the messages with which the validator denies a request.
func validate(v validating.Validator, attr *admission.VersionedAttributes, namespaceLabels map[string]string) []string {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: attr.GetNamespace(), Labels: namespaceLabels}}
	var out []string
	result := v.Validate(context.Background(), attr.GetResource(), attr, nil, namespace, apiservercel.RuntimeCELCostBudget, nil)
	for _, d := range result.Decisions {
		if d.Action == validating.ActionDeny {
			out = append(out, d.Message)
		}
	}
	return out
}

func TestInvalidAnnotationsAreDenied(t *testing.T) {
	v := load(t, "annotations.yaml")
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string // part of the message; "" if the pod is admitted
	}{
		"none":                   {nil, ""},
		"of others":              {map[string]string{"devices.example.com/x": "y", "notjackfield.dev": "z"}, ""},
		"devices":                {map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}, ""},
		"for the pod":            {map[string]string{"networks.jackfield.dev/pod": "none"}, ""},
		"for a container":        {map[string]string{"devices.jackfield.dev/container.app": "vendor.com/net=a"}, ""},
		"for an init container":  {map[string]string{"devices.jackfield.dev/container.setup": "vendor.com/net=a"}, ""},
		"with a dot":             {map[string]string{"devices.jackfield.dev/container.side.car": "vendor.com/net=a"}, ""},
		"unknown container":      {map[string]string{"devices.jackfield.dev/container.ap": "vendor.com/net=a"}, "devices.jackfield.dev/container.ap: the pod has no such container; it has app, side.car, setup"},
		"end of a container":     {map[string]string{"devices.jackfield.dev/container.car": "vendor.com/net=a"}, "no such container"},
		"unknown key":            {map[string]string{"device.jackfield.dev": "x"}, "device.jackfield.dev: the annotations are"},
		"unknown case":           {map[string]string{"Devices.Jackfield.dev": "x"}, "the annotations are"},
		"unknown scope":          {map[string]string{"devices.jackfield.dev/containers.app": "x"}, "the annotations are"},
		"the domain":             {map[string]string{"jackfield.dev/devices": "x"}, "the annotations are"},
		"too long":               {map[string]string{"devices.jackfield.dev": strings.Repeat("a", 65537)}, "longer than"},
		"too long in bytes":      {map[string]string{"devices.jackfield.dev": strings.Repeat("é", 32769)}, "longer than"},
		"no networks":            {map[string]string{"networks.jackfield.dev": " \n"}, "networks.jackfield.dev is empty"},
		"256 KiB of others":      {map[string]string{"other": strings.Repeat("a", 256<<10), "devices.jackfield.dev": "vendor.com/net=a"}, ""},
		"many keys of Jackfield": {manyKeys(2000), "no such container"},
	} {
		got := denials(t, v, nil, pod(tc.annotations), nil)
		if tc.want == "" && len(got) > 0 || tc.want != "" && !strings.Contains(strings.Join(got, "\n"), tc.want) {
			t.Errorf("%s: got %.300q, want %q", name, got, tc.want)
		}
	}
	debugged := pod(map[string]string{"devices.jackfield.dev/container.dbg": "vendor.com/net=a"})
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "dbg"}}}
	if got := denials(t, v, nil, debugged, nil); len(got) > 0 {
		t.Errorf("an annotation for an ephemeral container: %q", got)
	}
	// A pod with invalid annotations can still be updated if these stay as they are.
	wrong := pod(map[string]string{"device.jackfield.dev": "x"})
	if got := denials(t, v, nil, wrong, wrong); len(got) > 0 {
		t.Errorf("a pod with unchanged annotations: %q", got)
	}
	others := pod(map[string]string{"device.jackfield.dev": "x", "k8s.v1.cni.cncf.io/network-status": "[]"})
	if got := denials(t, v, nil, others, wrong); len(got) > 0 {
		t.Errorf("a pod whose other annotations change: %q", got)
	}
	for _, was := range []*corev1.Pod{pod(nil), pod(map[string]string{"a": "b"}), pod(map[string]string{"device.jackfield.dev": "y"})} {
		if got := denials(t, v, nil, wrong, was); len(got) == 0 {
			t.Errorf("a pod with %v is admitted with a new invalid annotation", was.Annotations)
		}
	}
}

// A pod's annotations come with the pod, its status (Multus writes its own so) or its binding.
func TestEveryRequestWithAnnotationsIsChecked(t *testing.T) {
	for _, file := range []string{"annotations.yaml", "namespaces.yaml"} {
		data, err := os.ReadFile("../../deploy/admission/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := yaml.UnmarshalStrict(bytes.Split(data, []byte("\n---\n"))[0], &policy); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			resource, subresource string
			operation             admission.Operation
			want                  bool
		}{
			{"pods", "", admission.Create, true}, {"pods", "", admission.Update, true}, {"pods", "status", admission.Update, true},
			{"pods", "binding", admission.Create, true}, {"bindings", "", admission.Create, true},
			{"pods", "eviction", admission.Create, false}, {"services", "", admission.Create, false},
		} {
			gvk, gvr := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource(tc.resource)
			attr := admission.NewAttributesRecord(pod(nil), pod(nil), gvk, "telco", "fwd-0", gvr, tc.subresource, tc.operation, nil, false, nil)
			got := false
			for _, r := range policy.Spec.MatchConstraints.ResourceRules {
				matcher := rules.Matcher{Rule: r.RuleWithOperations, Attr: attr}
				got = got || matcher.Matches()
			}
			if got != tc.want {
				t.Errorf("%s applies to %s of %s/%s: %v, want %v", file, tc.operation, tc.resource, tc.subresource, got, tc.want)
			}
		}
	}
}

// A binding has annotations but no containers.
func TestAnnotationsOfBindingsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		file        string
		annotations map[string]string
		denied      string // part of the message; "" if the binding is admitted
	}{
		{"annotations.yaml", nil, ""},
		{"annotations.yaml", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}, ""},
		{"annotations.yaml", map[string]string{"devices.jackfield.dev/container.app": "vendor.com/net=a"}, ""},
		{"annotations.yaml", map[string]string{"device.jackfield.dev": "x"}, "device.jackfield.dev: the annotations are"},
		{"namespaces.yaml", nil, ""},
		{"namespaces.yaml", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}, "may not ask for devices"},
	} {
		binding := &corev1.Binding{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
			ObjectMeta: metav1.ObjectMeta{Name: "fwd-0", Namespace: "telco", Annotations: tc.annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n1"}}
		gvk, gvr := corev1.SchemeGroupVersion.WithKind("Binding"), corev1.SchemeGroupVersion.WithResource("pods")
		attr := &admission.VersionedAttributes{VersionedKind: gvk, VersionedObject: admission.NewLazyObject(binding),
			Attributes: admission.NewAttributesRecord(binding, nil, gvk, "telco", "fwd-0", gvr, "binding", admission.Create, nil, false, nil)}
		got := validate(load(t, tc.file), attr, nil)
		if tc.denied == "" && len(got) > 0 || !strings.Contains(strings.Join(got, ""), tc.denied) {
			t.Errorf("%s: a binding with %v: %q, want %q", tc.file, tc.annotations, got, tc.denied)
		}
	}
}

func manyKeys(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m["devices.jackfield.dev/container.x"+strings.Repeat("y", i%40)+string(rune('a'+i%26))+strings.Repeat("z", i/1040)] = "a/b=c"
	}
	return m
}

func TestDevicesInUnlabelledNamespacesAreDenied(t *testing.T) {
	v := load(t, "namespaces.yaml")
	allowed := map[string]string{"jackfield.dev/devices": "allowed"}
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		denied              bool
	}{
		"no request":                          {nil, map[string]string{"a": "b"}, false},
		"allowed":                             {allowed, map[string]string{"devices.jackfield.dev": "a/b=c"}, false},
		"not labelled":                        {nil, map[string]string{"devices.jackfield.dev": "a/b=c"}, true},
		"labelled otherwise":                  {map[string]string{"jackfield.dev/devices": "no"}, map[string]string{"devices.jackfield.dev": "a/b=c"}, true},
		"annotation of CDI":                   {nil, map[string]string{"cdi.k8s.io/x": "a/b=c"}, true},
		"annotation of device-injector":       {nil, map[string]string{"mounts.nri.io/container.app": "[]"}, true},
		"newer annotation of device-injector": {nil, map[string]string{"cdi-devices.noderesource.dev": "[]"}, true},
		"other annotation of nri.io":          {nil, map[string]string{"cpu.nri.io": "[]"}, false},
		"other spelling":                      {nil, map[string]string{"DEVICES.jackfield.dev": "a/b=c"}, true},
	} {
		got := denials(t, v, tc.labels, pod(tc.annotations), nil)
		if (len(got) > 0) != tc.denied {
			t.Errorf("%s: %q", name, got)
		}
		if tc.denied && !strings.Contains(strings.Join(got, ""), "kubectl label namespace telco jackfield.dev/devices=allowed") {
			t.Errorf("%s: %q does not say what to do", name, got)
		}
		// Annotations from before the policy, or from before the label was removed, may stay.
		was, is := pod(tc.annotations), pod(maps.Clone(tc.annotations))
		is.Annotations["k8s.v1.cni.cncf.io/network-status"] = "[]"
		if got := denials(t, v, tc.labels, is, was); len(got) > 0 {
			t.Errorf("%s: another annotation: %q", name, got)
		}
		if got := denials(t, v, tc.labels, is, pod(map[string]string{"a": "b"})); (len(got) > 0) != tc.denied {
			t.Errorf("%s: a new annotation: %q", name, got)
		}
	}
}
