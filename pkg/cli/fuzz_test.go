// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// What a command is handed, by a person or by another program, is understood or
// refused in a message of sensible length that names the file.
func FuzzManifest(f *testing.F) {
	for _, data := range []string{
		"kind: Pod\nmetadata: {name: p, namespace: n, labels: {a: b}, annotations: {devices.jackfield.dev: v.com/n=a}}\nspec:\n  securityContext: {runAsUser: 7}\n  initContainers: [{name: i, image: x}]\n  containers: [{name: c, command: [a], args: [b], env: [{name: A, value: B}], volumeMounts: [{name: v, mountPath: /v}]}]\n",
		"kind: Pod\nspec: {containers: [{}]}\n---\nkind: Pod\n", "kind: Deployment\n", "kind: Deployment\nspec: {template: {spec: {containers: [{name: a}]}}}\n---\nkind: PodList\nitems: [{spec: {containers: [{}]}}]\n--- # x\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{}]}}}}}\n", `{"kind":"Pod","spec":{"containers":[{"securityContext":{"runAsUser":-1}}]}}`, "kind: Pod\nspec: {containers: [null]}",
		"config: c.yaml\ncases:\n- {name: a, for: {namespace: n}, ask: {cdi: [v.com/n=a]}, want: granted, rule: r}\n- {name: b, pod: p.yaml, want: refused, message: m, count: {cdi: 1}}\n",
		"cases: [{}]", "cases: [{name: a, for: {}, want: granted, count: {cdi: x}}]", "a: &a [*a]\n", "\t", "0123456789ab,0123456789abcdef\n", "abc -",
	} {
		f.Add([]byte(data))
	}
	const file = "the-file.yaml"
	f.Fuzz(func(t *testing.T, data []byte) {
		refused := func(what string, none bool, err error) {
			t.Helper()
			if none == (err == nil) {
				t.Fatalf("%s: both or neither of a value and %v", what, err)
			}
			if err != nil && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), file) || len(err.Error()) > 4<<10) {
				t.Errorf("%s: %d bytes: %.500v", what, len(err.Error()), err)
			}
		}
		pods, err := parsePods(file, data)
		refused("pods", len(pods) == 0, err)
		for _, p := range pods {
			requests := p.requests("sandbox")
			if len(requests) != len(p.Spec.InitContainers)+len(p.Spec.Containers) || len(requests) == 0 {
				t.Errorf("%d requests of %+v", len(requests), p)
			}
			for _, r := range requests {
				if r == nil || r.SandboxID != "sandbox" {
					t.Errorf("%+v", r)
				}
			}
		}
		cases, err := parseCases(file, data)
		refused("cases", cases == nil, err)
		if err == nil {
			for i := range cases.Cases {
				if c := &cases.Cases[i]; c.Name == "" || (c.Pod == "") == (c.For == nil) {
					t.Errorf("%+v", c)
				}
			}
		}
		ids := splitIDs(string(data))
		if fault := faultOfIDs(ids); len(fault) > 1000 || (fault == "") != (len(ids) > 0 && everyID(ids)) {
			t.Errorf("%.200q: %.500s", ids, fault)
		}
		rows := &table{}
		flatten(rows, "", data, func(string) string { return "" })
	})
}

func everyID(ids []string) bool {
	for _, id := range ids {
		if len(id) < 12 || len(id) > 64 || strings.Trim(id, "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}
