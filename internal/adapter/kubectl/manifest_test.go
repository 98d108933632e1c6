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
	got, want := describePod(t, reduced), describePod(t, whole)
	if d := cmp.Diff(want, got); d != "" || len(want) < 3 {
		t.Errorf("-whole +reduced\n%s", d)
	}
}

// describePod returns what explain reads of a pod.
func describePod(t *testing.T, text string) (lines []string) {
	t.Helper()
	objects, err := manifest.Parse("pod.json", []byte(text), "default")
	if err != nil || len(objects.Pods) != 1 {
		t.Fatalf("%d pods: %v", len(objects.Pods), err)
	}
	p := objects.Pods[0]
	delete(p.Metadata.Annotations, lastApplied)
	for _, r := range p.Requests("sandbox", "") {
		for i, env := range r.Have.Env {
			if name, _, _ := strings.Cut(env, "="); !strings.HasPrefix(name, "PCIDEVICE_") {
				r.Have.Env[i] = name
			}
		}
		lines = append(lines, fmt.Sprintln(r.Name(), r.PodUID, r.Image, r.RuntimeHandler, r.Labels, r.Annotations, *r.User, r.Args[0], r.Have, p.ClaimUses(r.Container)))
	}
	return append(lines, fmt.Sprint(p.Kind, p.Spec.ResourceClaims, p.ClaimName(&p.Spec.ResourceClaims[0])))
}
