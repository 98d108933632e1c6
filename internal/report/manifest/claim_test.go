// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClaimsOfEveryVersionAreRead(t *testing.T) {
	objects, err := Parse("c.yaml", []byte(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: a}
spec: {spec: {devices: {requests: [{name: vf, exactly: {deviceClassName: vf.example.com}},
  {name: any, firstAvailable: [{name: big, deviceClassName: big.example.com}, {name: small, deviceClassName: small.example.com}]}]}}}
---
{apiVersion: resource.k8s.io/v1beta1, kind: ResourceClaim, metadata: {name: old}, spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.example.com}]}}}
---
kind: ResourceClaimList
items:
  - metadata: {name: running, namespace: b}
    spec: {devices: {requests: [{name: vf}]}}
    status: {allocation: {devices: {results: [{request: vf, driver: d.example.com, pool: node, device: dev-1}]}}}
---
{kind: Pod, metadata: {name: p}, spec: {devices: 7, containers: [{name: c}]}}
---
{kind: ConfigMap, metadata: 7}
`), "default")
	type claim struct {
		classes map[string][]string // by request
		devices []ClaimDevice
	}
	want := map[string]claim{
		"ResourceClaimTemplate a/one": {map[string][]string{"vf": {"vf.example.com"}, "any": {"big.example.com", "small.example.com"}}, nil},
		"ResourceClaim default/old":   {map[string][]string{"gpu": {"gpu.example.com"}}, nil},
		"ResourceClaim b/running":     {map[string][]string{"vf": nil}, []ClaimDevice{{"vf", "d.example.com", "node", "dev-1"}}},
	}
	got := map[string]claim{}
	for title, c := range objects.Claims {
		classes := map[string][]string{}
		for _, r := range c.Requests {
			classes[r.Name] = r.Classes()
		}
		got[title] = claim{classes, c.Devices}
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(claim{})); d != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
}

func TestErrorNamesTheFaultyClaim(t *testing.T) {
	for text, want := range map[string]string{
		`{kind: ResourceClaim, metadata: {name: x}, spec: {devices: []}}`:                            `read manifest "c.yaml": ResourceClaim "x": json: `,
		`{kind: ResourceClaimTemplate, metadata: {name: x}, spec: {spec: {devices: {requests: 1}}}}`: `read manifest "c.yaml": ResourceClaimTemplate "x": json: `,
		"a: b: c": `read manifest "c.yaml": `,
	} {
		if _, err := Parse("c.yaml", []byte(text), ""); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A claim's name in the cluster is in the pod's spec, or in its status.
func TestClaimNameOfPod(t *testing.T) {
	objects, err := Parse("p.yaml", []byte(`
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: a, resourceClaimName: shared}, {name: b, resourceClaimTemplateName: one}, {name: c, resourceClaimTemplateName: one}, {name: d}]
  initContainers: [{name: first, resources: {claims: [{name: a}]}}]
  containers: [{name: app, resources: {claims: [{name: b, request: vf}, {name: c}]}}]
status: {resourceClaimStatuses: [{name: b, resourceClaimName: p-b-x7k2p}]}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	pods := objects.Pods
	var got []string
	for i := range pods[0].Spec.ResourceClaims {
		c := &pods[0].Spec.ResourceClaims[i]
		kind, name := c.Object()
		got = append(got, kind+" "+name+" "+pods[0].ClaimName(c))
	}
	if d := cmp.Diff([]string{"ResourceClaim shared shared", "ResourceClaimTemplate one p-b-x7k2p", "ResourceClaimTemplate one ", "  "}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]ClaimUse{{"b", "vf"}, {"c", ""}}, pods[0].ClaimUses("app")); d != "" {
		t.Error(d)
	}
	if uses := append(pods[0].ClaimUses("none"), pods[0].ClaimUses("first")...); len(uses) != 1 || uses[0].Name != "a" {
		t.Errorf("got %+v", uses)
	}
}

func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{kind: ResourceClaim, metadata: {name: x}, spec: {devices: {requests: [{name: a, exactly: null}]}}, status: null}`))
	f.Add([]byte(`{kind: List, items: [{kind: ResourceClaimTemplate, spec: {spec: {devices: {requests: [{firstAvailable: [{}]}]}}}}, null, 7]}`))
	f.Add([]byte(`{kind: ResourceClaimList, items: [{}, {kind: ResourceClaimList, items: [{}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := Parse("f", data, "")
		for title, c := range objects.Claims {
			kind, _, _ := strings.Cut(title, " ")
			if err != nil && !isNoPods(err) || kind != ResourceClaim && kind != ResourceClaimTemplate || kind == ResourceClaimTemplate && c.Devices != nil {
				t.Errorf("%s: %+v, %v", title, c, err)
			}
			for _, r := range c.Requests {
				for _, class := range r.Classes() {
					if class == "" {
						t.Errorf("%+v", r)
					}
				}
			}
		}
	})
}
