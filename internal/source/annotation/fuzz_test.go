// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"vendor.com/net=vf0,nvidia=0", "[{device: nvidia=0, optional: true}]", "- a\n- &b c\n", "auto", "none",
		"resource:intel.com/sriov/0000:3b:00.2", "socket:spire", `["a=0",{"network":"b"}]`, "[{interface: net1}]", "ns/name",
		"? a\n: b", "[\"\\ud83d\\ude00\"]", "%YAML 1.2\n---\n[]", "\ufeff[]",
	} {
		f.Add(s, s, "x", s)
		f.Add("", "", s, s)
	}
	f.Fuzz(func(t *testing.T, devices, networks, name, value string) {
		annotations := make(map[string]string)
		for key, v := range map[string]string{DevicesKey + "/pod": devices, NetworksKey: networks, CDIPrefix + name: value, name: value} {
			if v != "" {
				annotations[key] = v
			}
		}
		got, err := Parse(annotations, "app")
		again, errAgain := Parse(annotations, "app")
		if !reflect.DeepEqual(got, again) || (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
			t.Fatalf("two runs: %+v, %v; %+v, %v", got, err, again, errAgain)
		}
		if err != nil {
			var typed *Error
			if !errors.As(err, &typed) || !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Fatalf("not an *Error: %#v", err)
			}
			if s := err.Error(); len(s) > 600 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("a message of %d bytes: %q", len(s), s)
			}
			return
		}
		if (len(got.Devices) > 0 || got.Networks.Key != "") && !HasAny(annotations) {
			t.Fatal("HasAny ignores it")
		}
		seen := make(map[Device]bool)
		for _, d := range got.Devices {
			identity := Device{Kind: d.Kind, Name: d.Name, ID: d.ID}
			if seen[identity] {
				t.Fatalf("%s occurs twice", d.Name)
			}
			seen[identity] = true
			if d.Kind == CDI && !parser.IsQualifiedName(d.Name) {
				t.Fatalf("%q is not a CDI name", d.Name)
			}
			if d.Position < 1 || d.Key == "" {
				t.Fatalf("%+v has no place", d)
			}
			one, err := parseDevice(Request{Item: d.Item})
			if err != nil || one.Name != d.Name || one.ID != d.ID || one.Kind != d.Kind {
				t.Fatalf("%q does not read back: %+v, %v", d.Item, one, err)
			}
		}
		if (got.Networks.Mode == NetworksListed) != (len(got.Networks.Items) > 0) {
			t.Fatalf("networks %+v", got.Networks)
		}
		for _, n := range got.Networks.Items {
			if n.Name == "" && n.Interface == "" || strings.ContainsAny(n.Name+n.Interface, "/\x00 ") {
				t.Fatalf("network %+v", n)
			}
		}
	})
}

func BenchmarkHasAnyNothing(b *testing.B) {
	annotations := map[string]string{
		"kubernetes.io/config.seen": "x", "kubernetes.io/config.source": "api", "k8s.v1.cni.cncf.io/networks": "net1",
		"cni.projectcalico.org/podIP": "10.0.0.1/32", "prometheus.io/scrape": "true",
	}
	b.ReportAllocs()
	for b.Loop() {
		if HasAny(annotations) {
			b.Fatal("something")
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for name, value := range map[string]string{
		"comma": "vendor.com/net=a,vendor.com/net=b,vendor.com/gpu=0,nvidia=0",
		"json":  `["vendor.com/net=a","vendor.com/net=b",{"device":"vendor.com/gpu=0","optional":true},"nvidia=0"]`,
	} {
		b.Run(name, func(b *testing.B) {
			annotations := map[string]string{DevicesKey: value, "kubernetes.io/config.source": "api"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(annotations, "app"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
