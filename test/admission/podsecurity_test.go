// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// A pod that requests a socket of the host complies with the Pod Security level restricted, as the how-to promises. The
// same pod with a hostPath volume does not.
func TestPodWithNamedSocketIsRestricted(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/give-a-pod-a-host-socket.md")
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(block[1], "kind: Pod") {
			if err := yaml.UnmarshalStrict([]byte(block[1]), &pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !strings.Contains(pod.Annotations["devices.jackfield.dev/container.web"], "socket:spire") {
		t.Fatalf("the page has no pod that requests a socket: %v", pod.Annotations)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	evaluate := func(level api.Level, pod *corev1.Pod) policy.AggregateCheckResult {
		return policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec))
	}
	if r := evaluate(api.LevelRestricted, &pod); !r.Allowed {
		t.Errorf("restricted refuses the pod: %s", r.ForbiddenDetail())
	}
	before := pod.DeepCopy()
	before.Spec.Volumes = []corev1.Volume{{Name: "spire", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/spire"}}}}
	before.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "spire", MountPath: "/run/spire"}}
	for _, level := range []api.Level{api.LevelBaseline, api.LevelRestricted} {
		if r := evaluate(level, before); r.Allowed || !strings.Contains(r.ForbiddenDetail(), "hostPath") {
			t.Errorf("%s admits the pod with a hostPath volume: %+v", level, r)
		}
	}
}
