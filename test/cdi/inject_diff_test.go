// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	order "cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	upstream "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/edit/oci"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/ocivalid"
)

// newEngine returns an engine as inject creates it.
func newEngine(tb testing.TB, dirs []string) *engine.Engine {
	tb.Helper()
	e, err := engine.New(hostfs.Host(), engineConfig(), engine.Options{AllowAll: true, ForAdministrator: true, Once: true, SpecDirs: dirs})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	return e
}

func engineConfig() *config.Config { return config.Default() }

// inject applies the devices to a spec as `jackfield inject` does. After an error spec is unchanged.
func inject(e *engine.Engine, spec *rspec.Spec, devices ...string) error {
	versioned := *spec
	versioned.Version = "1.2.0"
	text, err := json.Marshal(&versioned)
	if err != nil {
		return err
	}
	if text, err = injectText(e, text, devices...); err != nil {
		return err
	}
	var out rspec.Spec
	if err := json.Unmarshal(text, &out); err != nil {
		return err
	}
	out.Version = spec.Version
	*spec = out
	return nil
}

// injectText applies the devices to the text of a config.json.
func injectText(e *engine.Engine, text []byte, devices ...string) ([]byte, error) {
	c, err := oci.ParseConfig("config.json", text)
	if err != nil {
		return nil, err
	}
	spec := c.Spec()
	req := &engine.Request{CDIDevices: devices, Have: oci.Existing(spec)}
	if spec.Process != nil {
		req.User = &engine.User{UID: spec.Process.User.UID, GID: spec.Process.User.GID}
	}
	plan, err := e.Resolve(context.Background(), req)
	if err != nil || plan == nil {
		return text, err
	}
	return c.Apply(&plan.Set)
}

func newUpstreamCache(tb testing.TB, dirs []string) *upstream.Cache {
	tb.Helper()
	c, err := upstream.NewCache(upstream.WithSpecDirs(dirs...), upstream.WithAutoRefresh(false))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func copySpec(tb testing.TB, s *rspec.Spec) *rspec.Spec {
	tb.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		tb.Fatal(err)
	}
	var out rspec.Spec
	if err := json.Unmarshal(text, &out); err != nil {
		tb.Fatal(err)
	}
	return &out
}

// foldRules sorts consecutive allow rules and merges those with the same numbers. Upstream has one
// rule for each mention of a node, and Jackfield has one for each node.
func foldRules(s *rspec.Spec) *rspec.Spec {
	if s.Linux == nil || s.Linux.Resources == nil {
		return s
	}
	number := func(n *int64) int64 {
		if n == nil {
			return -1
		}
		return *n
	}
	compare := func(a, b rspec.LinuxDeviceCgroup) int {
		return order.Or(strings.Compare(a.Type, b.Type), int(number(a.Major)-number(b.Major)), int(number(a.Minor)-number(b.Minor)))
	}
	var out []rspec.LinuxDeviceCgroup
	since := 0
	for _, r := range s.Linux.Resources.Devices {
		r.Access = sortPermissions(r.Access)
		at := slices.IndexFunc(out[since:], func(o rspec.LinuxDeviceCgroup) bool { return r.Allow && compare(o, r) == 0 })
		switch {
		case at >= 0:
			out[since+at].Access = sortPermissions(out[since+at].Access + r.Access)
			continue
		case !r.Allow:
			slices.SortFunc(out[since:], compare)
			since = len(out) + 1
		}
		out = append(out, r)
	}
	slices.SortFunc(out[min(since, len(out)):], compare)
	s.Linux.Resources.Devices = out
	return s
}

func sortPermissions(access string) string {
	var b strings.Builder
	for _, c := range "rwm" {
		if strings.ContainsRune(access, c) {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// refusesRepeatedNetDevice reports whether upstream refuses a network device that two devices bring under one name.
func refusesRepeatedNetDevice(err error) bool {
	return err != nil && strings.Contains(err.Error(), "duplicate HostInterfaceName")
}

// withoutTypeBits removes the bits of the file type from the modes of nodes, which upstream keeps.
func withoutTypeBits(s *rspec.Spec) *rspec.Spec {
	if s.Linux != nil {
		for _, d := range s.Linux.Devices {
			if d.FileMode != nil {
				*d.FileMode &= 0o7777
			}
		}
	}
	return s
}

func diffSpecs(tb testing.TB, theirs, ours *rspec.Spec) string {
	tb.Helper()
	return cmp.Diff(foldRules(withoutTypeBits(copySpec(tb, theirs))), foldRules(copySpec(tb, ours)), cmpopts.EquateEmpty())
}

// checkInjection injects on both sides and compares the results. It reports whether both succeeded.
func checkInjection(tb testing.TB, in injection, dirs []string) bool {
	tb.Helper()
	show := func() string {
		text, err := json.MarshalIndent(map[string]any{"dirs": in.dirs, "spec": in.spec, "devices": in.devices}, "", " ")
		if err != nil {
			tb.Fatal(err)
		}
		return string(text)
	}
	e := newEngine(tb, dirs)
	ours, theirs, before := copySpec(tb, in.spec), copySpec(tb, in.spec), copySpec(tb, in.spec)
	err := inject(e, ours, in.devices...)
	_, theirErr := newUpstreamCache(tb, dirs).InjectDevices(theirs, in.devices...)
	if err == nil && refusesRepeatedNetDevice(theirErr) {
		return false
	}
	if (err == nil) != (theirErr == nil) {
		tb.Fatalf("jackfield: %v\nupstream: %v\non\n%s", err, theirErr, show())
	}
	if err != nil {
		if diff := cmp.Diff(before, ours); diff != "" {
			tb.Fatalf("partly edited: %s\non\n%s", diff, show())
		}
		return false
	}
	if diff := diffSpecs(tb, theirs, ours); diff != "" {
		tb.Fatalf("-upstream +jackfield\n%s\non\n%s", diff, show())
	}
	ocivalid.Check(tb, before, ours)
	again := copySpec(tb, ours)
	if err := inject(e, again, in.devices...); err != nil {
		tb.Fatalf("second injection: %v\non\n%s", err, show())
	}
	if diff := cmp.Diff(ours, again, cmpopts.EquateEmpty()); diff != "" {
		tb.Fatalf("a second injection changes: %s\non\n%s", diff, show())
	}
	return true
}

// TestInjectionAgreesWithUpstream compares the OCI specs that both sides produce from generated directories
// and requests.
func TestInjectionAgreesWithUpstream(t *testing.T) {
	base, h := t.TempDir(), newHost(t)
	done := 0
	n := *rounds / 3
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := generator{rand.New(rand.NewPCG(uint64(seed), 13))}
			in := g.injection(h)
			if checkInjection(t, in, in.write(t, base)) {
				done++
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d injected by both", done, n)
	if done < n/2 || done > n*19/20 {
		t.Errorf("%d of %d cases are injected: the generator tests only one side", done, n)
	}
}

// FuzzInjectionAgreesWithUpstream is TestInjectionAgreesWithUpstream with the choices of a fuzzer.
func FuzzInjectionAgreesWithUpstream(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		b := make([]byte, 200)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		f.Add(b)
	}
	h := newHost(f)
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, choices []byte) {
		g := generator{rand.New(&byteSource{choices, rand.NewPCG(5, 6)})}
		in := g.injection(h)
		checkInjection(t, in, in.write(t, base))
	})
}
