// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	upstream "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	ours "github.com/jackfield/jackfield/pkg/cdi"
)

func openCache(tb testing.TB, dirs []string) *ours.Cache {
	tb.Helper()
	c, err := ours.NewCache(ours.Options{SpecDirs: dirs, DisableWatch: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// compareCaches compares what pkg/cdi and upstream list, and what both inject.
func compareCaches(t *testing.T, in injection, dirs []string) {
	t.Helper()
	c, theirs := openCache(t, dirs), newUpstreamCache(t, dirs)
	for what, lists := range map[string][2][]string{
		"vendors":     {theirs.ListVendors(), c.ListVendors()},
		"classes":     {theirs.ListClasses(), c.ListClasses()},
		"devices":     {theirs.ListDevices(), c.ListDevices()},
		"directories": {theirs.GetSpecDirectories(), c.GetSpecDirectories()},
		"spec errors": {slices.Sorted(maps.Keys(theirs.GetErrors())), slices.Sorted(maps.Keys(c.GetErrors()))},
	} {
		if diff := cmp.Diff(lists[0], lists[1], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-upstream +pkg/cdi): %s", what, diff)
		}
	}
	for _, name := range theirs.ListDevices() {
		d, err := c.GetDevice(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(&theirs.GetDevice(name).Device.ContainerEdits, d.Edits, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("edits of %s (-upstream +pkg/cdi): %s", name, diff)
		}
	}
	before, mine, peer := copySpec(t, in.spec), copySpec(t, in.spec), copySpec(t, in.spec)
	unresolved, err := c.InjectDevices(mine, in.devices...)
	theirUnresolved, theirErr := theirs.InjectDevices(peer, in.devices...)
	if err == nil && refusesRepeatedNetDevice(theirErr) {
		return
	}
	if (err == nil) != (theirErr == nil) || !slices.Equal(unresolved, theirUnresolved) {
		t.Fatalf("pkg/cdi: %q, %v\nupstream: %q, %v", unresolved, err, theirUnresolved, theirErr)
	}
	if err != nil {
		peer = before
	}
	if diff := diffSpecs(t, peer, mine); diff != "" {
		t.Fatalf("-upstream +pkg/cdi\n%s", diff)
	}
}

// TestCacheAgreesWithUpstream compares pkg/cdi with upstream on generated directories,
// OCI specs and requests, some of them for devices that do not exist.
func TestCacheAgreesWithUpstream(t *testing.T) {
	base, h := t.TempDir(), newHost(t)
	for seed := range *rounds / 10 {
		g := generator{rand.New(rand.NewPCG(uint64(seed), 17))}
		in := g.injection(h)
		if g.chance(20) {
			in.devices = append(in.devices, pick(g, "vendor.com/none=x", "no name", "v.com/c=missing"))
		}
		compareCaches(t, in, in.write(t, base))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestCacheWritesWhatUpstreamReads writes a transient spec with pkg/cdi, reads it with
// upstream, and removes it.
func TestCacheWritesWhatUpstreamReads(t *testing.T) {
	dir := t.TempDir()
	c := openCache(t, []string{dir})
	spec := &specs.Spec{Version: "0.6.0", Kind: "vendor.com/gpu", Devices: []specs.Device{{Name: "0", ContainerEdits: specs.ContainerEdits{Env: []string{"A=b"}}}}}
	for _, ext := range []string{"", ".json", ".yaml"} {
		name, err := ours.GenerateTransientSpecName("vendor.com", "gpu", "pod/1")
		if err != nil {
			t.Fatal(err)
		}
		if want := upstream.GenerateTransientSpecName("vendor.com", "gpu", "pod/1"); name != want {
			t.Errorf("the name is %q, and upstream's is %q", name, want)
		}
		file, err := c.WriteSpec(spec, name+ext)
		if err != nil {
			t.Fatal(err)
		}
		read, err := upstream.ReadSpec(file, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := compareSpecs(spec, read.Spec); err != nil {
			t.Error(err)
		}
		if err := c.RemoveSpec(name + ext); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s exists after its removal: %v", file, err)
		}
	}
	if got, want := ours.GenerateSpecName("vendor.com", "gpu"), upstream.GenerateSpecName("vendor.com", "gpu"); got != want {
		t.Errorf("the name is %q, and upstream's is %q", got, want)
	}
}

// TestCacheNamesAgreeWithUpstream compares the rules for qualified names and annotations.
func TestCacheNamesAgreeWithUpstream(t *testing.T) {
	names := []string{"vendor.com/gpu=0", "vendor.com/gpu=gpu-0.1:x", "vendor.com/gpu", "=", "", "a/b=c", "-a/b=c", "a/b-=c", "a/b=c-", "a/b=c=d", "A_b.c/D=E", "ä/b=c"}
	for _, name := range names {
		vendor, class, device, err := ours.ParseQualifiedName(name)
		theirVendor, theirClass, theirDevice, theirErr := parser.ParseQualifiedName(name)
		if err == nil && refusesRepeatedNetDevice(theirErr) {
			return
		}
		if (err == nil) != (theirErr == nil) || err == nil && (vendor != theirVendor || class != theirClass || device != theirDevice) {
			t.Errorf("%q: pkg/cdi %q %q %q %v, upstream %q %q %q %v", name, vendor, class, device, err, theirVendor, theirClass, theirDevice, theirErr)
		}
		for _, id := range []string{"", "0", "a/b", "-", "x y"} {
			got, err := ours.UpdateAnnotations(map[string]string{"cdi.k8s.io/used_0": ""}, "used", id, []string{name})
			want, theirErr := upstream.UpdateAnnotations(map[string]string{"cdi.k8s.io/used_0": ""}, "used", id, []string{name})
			if err == nil && refusesRepeatedNetDevice(theirErr) {
				return
			}
			if (err == nil) != (theirErr == nil) || !maps.Equal(got, want) {
				t.Errorf("annotation of %q for %q: pkg/cdi %v %v, upstream %v %v", id, name, got, err, want, theirErr)
			}
		}
		annotations := map[string]string{"cdi.k8s.io/a": "vendor.com/gpu=1," + name, "other": "x"}
		keys, devices, err := ours.ParseAnnotations(annotations)
		theirKeys, theirDevices, theirErr := upstream.ParseAnnotations(annotations)
		if err == nil && refusesRepeatedNetDevice(theirErr) {
			return
		}
		if (err == nil) != (theirErr == nil) || !slices.Equal(keys, theirKeys) || !slices.Equal(devices, theirDevices) {
			t.Errorf("%q: pkg/cdi %q %q %v, upstream %q %q %v", name, keys, devices, err, theirKeys, theirDevices, theirErr)
		}
	}
}
