// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// A manifest has pods, each with a request for each container, or is refused in a message of bounded
// length that names the file.
func FuzzManifest(f *testing.F) {
	for _, data := range []string{
		"kind: Pod\nmetadata: {name: p, namespace: n, labels: {a: b}, annotations: {devices.jackfield.dev: v.com/n=a}}\nspec:\n  securityContext: {runAsUser: 7}\n  initContainers: [{name: i, image: x}]\n  containers: [{name: c, command: [a], args: [b], env: [{name: A, value: B}], volumeMounts: [{name: v, mountPath: /v}]}]\n",
		"kind: Pod\nspec: {containers: [{}]}\n---\nkind: Pod\n", "kind: Deployment\n", "kind: Deployment\nspec: {template: {spec: {containers: [{name: a}]}}}\n---\nkind: PodList\nitems: [{spec: {containers: [{}]}}]\n--- # x\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{}]}}}}}\n", `{"kind":"Pod","spec":{"containers":[{"securityContext":{"runAsUser":-1}}]}}`, "kind: Pod\nspec: {containers: [null]}",
		"a: &a [*a]\n", "\t",
	} {
		f.Add([]byte(data))
	}
	const file = "the-file.yaml"
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := Parse(file, data, "")
		pods := objects.Pods
		if (len(pods) == 0) == (err == nil) {
			t.Fatalf("both or neither of pods and %v", err)
		}
		if err != nil && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), file) || len(err.Error()) > 4<<10) {
			t.Errorf("%d bytes: %.500v", len(err.Error()), err)
		}
		for _, p := range pods {
			requests := p.Requests("sandbox", "")
			if len(requests) != len(p.Spec.InitContainers)+len(p.Spec.Containers)+len(p.Spec.EphemeralContainers) || len(requests) == 0 {
				t.Errorf("%d requests of %+v", len(requests), p)
			}
			for _, r := range requests {
				if r == nil || r.SandboxID != "sandbox" {
					t.Errorf("%+v", r)
				}
			}
		}
	})
}

// Each kind of workload has its pod template read, alone, in a list, and among other documents.
func TestPodTemplateOfEachWorkload(t *testing.T) {
	const template = `{metadata: {annotations: {devices.jackfield.dev: "socket:spire"}}, spec: {containers: [{name: c}]}}`
	for _, kind := range Workloads {
		object := "{kind: " + kind + ", metadata: {name: w, namespace: n}, spec: {template: " + template + "}}"
		switch kind {
		case "CronJob":
			object = "{kind: CronJob, metadata: {name: w, namespace: n}, spec: {jobTemplate: {spec: {template: " + template + "}}}}"
		case "PodTemplate":
			object = "{kind: PodTemplate, metadata: {name: w, namespace: n}, template: " + template + "}"
		}
		typed := "{kind: " + kind + "List, items: [" + strings.Replace(object, "kind: "+kind+", ", "", 1) + "]}"
		for _, text := range []string{object, "{kind: List, items: [{kind: Service}, " + object + "]}", typed, "kind: Service\n---\n" + object + "\n---\nkind: ConfigMap\n"} {
			objects, err := Parse("f.yaml", []byte(text), "")
			pods := objects.Pods
			if err != nil || len(pods) != 1 || pods[0].Kind != kind || pods[0].Metadata.Name != "w" {
				t.Errorf("%s: %+v, %v", text, pods, err)
				continue
			}
			if r := pods[0].Requests("sb", ""); len(r) != 1 || r[0].Namespace != "n" || r[0].Container != "c" || r[0].Annotations["devices.jackfield.dev"] != "socket:spire" {
				t.Errorf("%s: %+v", text, r)
			}
		}
	}
}

func isNoPods(err error) bool {
	var none NoPodsError
	return errors.As(err, &none)
}

// A running pod may have ephemeral containers, which request as other containers do.
func TestContainersAreInOrderOfCreation(t *testing.T) {
	objects, err := Parse("pod.yaml", []byte(`
kind: Pod
metadata: {name: p, namespace: n}
spec:
  ephemeralContainers: [{name: debug, image: tools, targetContainerName: app}]
  containers: [{name: app}]
  initContainers: [{name: init}]
`), "")
	if err != nil {
		t.Fatal(err)
	}
	pod := objects.Pods[0]
	if got := strings.Join(pod.ContainerNames(), " "); got != "init app debug" {
		t.Errorf("containers %s", got)
	}
	if got := pod.Requests("", "debug"); len(got) != 1 || got[0].Image != "tools" {
		t.Errorf("requests %+v", got)
	}
}
