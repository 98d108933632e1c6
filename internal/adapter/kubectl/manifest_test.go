// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/report/manifest"
)

// secretPod has a secret wherever a pod can have one.
const secretPod = `{"apiVersion":"v1","kind":"Pod",
"metadata":{"name":"p","namespace":"n","uid":"u","labels":{"app":"x"},
 "annotations":{"devices.jackfield.dev":"vendor.com/net=a","kubectl.kubernetes.io/last-applied-configuration":"{\"value\":\"SECRET\"}"},
 "managedFields":[{"manager":"SECRET"}]},
"spec":{"runtimeClassName":"kata","securityContext":{"runAsUser":7},"resourceClaims":[{"name":"c","resourceClaimName":"shared"}],
 "imagePullSecrets":[{"name":"SECRET"}],"volumes":[{"name":"v","csi":{"volumeAttributes":{"token":"SECRET"}}}],
 "initContainers":[CONTAINER],"containers":[CONTAINER],"ephemeralContainers":[CONTAINER]},
"status":{"message":"SECRET","resourceClaimStatuses":[{"name":"c","resourceClaimName":"p-c-x"}],"containerStatuses":[{"name":"SECRET"}]}}`

const secretContainer = `{"name":"app","image":"i","command":["/bin/app","--password=SECRET"],"args":["--token","SECRET"],
 "env":[{"name":"PASSWORD","value":"SECRET"},{"name":"PCIDEVICE_EXAMPLE_COM_VF","value":"0000:03:00.1"},{"name":"REF","valueFrom":{"secretKeyRef":{"name":"SECRET"}}}],
 "envFrom":[{"secretRef":{"name":"SECRET"}}],"livenessProbe":{"httpGet":{"httpHeaders":[{"name":"Authorization","value":"SECRET"}]}},
 "lifecycle":{"postStart":{"exec":{"command":["SECRET"]}}},"resources":{"limits":{"hugepages-2Mi":"1Gi"},"claims":[{"name":"c","request":"r"}]},
 "volumeMounts":[{"name":"v","mountPath":"/v","subPath":"SECRET"}],"securityContext":{"runAsGroup":8}}`

// explain sees the same requests in what leaves for the plugin's pod, and secrets stay.
func TestReducedManifestHasRequestsAndNoSecrets(t *testing.T) {
	whole := strings.ReplaceAll(secretPod, "CONTAINER", secretContainer)
	reduced, err := reduceManifest(whole)
	if err != nil || strings.Contains(reduced, "SECRET") {
		t.Errorf("%v: %s", err, reduced)
	}
	got, want := describePods(t, reduced), describePods(t, whole)
	if d := cmp.Diff(want, got); d != "" || len(want) != 4 {
		t.Errorf("-whole +reduced\n%s", d)
	}
}

// describePods returns a line for each container that explain reads, and one for each pod.
func describePods(t *testing.T, text string) (lines []string) {
	t.Helper()
	objects, err := manifest.Parse("pod.json", []byte(text), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range objects.Pods {
		delete(p.Metadata.Annotations, lastApplied)
		delete(p.WorkloadAnnotations, lastApplied)
		for _, r := range p.Requests("sandbox", "") {
			for i, env := range r.Have.Env {
				if name, _, _ := strings.Cut(env, "="); !strings.HasPrefix(name, "PCIDEVICE_") {
					r.Have.Env[i] = name
				}
			}
			lines = append(lines, fmt.Sprintln(r.Name(), r.PodUID, r.Image, r.RuntimeHandler, r.Labels, r.Annotations,
				*r.User, r.Args[0], r.Have, p.ClaimUses(r.Container)))
		}
		lines = append(lines, fmt.Sprint(p.Kind, p.Spec.ResourceClaims, p.ClaimName(&p.Spec.ResourceClaims[0])))
	}
	return lines
}
