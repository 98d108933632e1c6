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

	"github.com/jackfield/jackfield/pkg/apply/oci"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// engine is Jackfield's side, as inject makes it.
func engine(tb testing.TB, dirs []string) *resolve.Engine {
	tb.Helper()
	e, err := resolve.New(hostfs.Host(), engineConfig(), resolve.Options{AllowAll: true, Once: true, SpecDirs: dirs})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	return e
}

func engineConfig() *config.Config { return config.Default() }

// inject is what `jackfield inject` does to a spec.
func inject(e *resolve.Engine, spec *rspec.Spec, devices ...string) error {
	req := &resolve.Request{CDIDevices: devices, Have: oci.Existing(spec)}
	if spec.Process != nil {
		req.User = &resolve.User{UID: spec.Process.User.UID, GID: spec.Process.User.GID}
	}
	plan, err := e.Resolve(context.Background(), req)
	if err != nil || plan == nil {
		return err
	}
	return oci.Apply(spec, &plan.Set)
}

// injectText is the same to the text of a config.json.
func injectText(e *resolve.Engine, text []byte, devices ...string) ([]byte, error) {
	c, err := oci.ParseConfig(text)
	if err != nil {
		return nil, err
	}
	spec := c.Spec()
	req := &resolve.Request{CDIDevices: devices, Have: oci.Existing(spec)}
	if spec.Process != nil {
		req.User = &resolve.User{UID: spec.Process.User.UID, GID: spec.Process.User.GID}
	}
	plan, err := e.Resolve(context.Background(), req)
	if err != nil || plan == nil {
		return text, err
	}
	return c.Apply(&plan.Set)
}

func upstreamCache(tb testing.TB, dirs []string) *upstream.Cache {
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

// foldRules puts the rules that allow, as far as nothing is denied between them, in
// one order, and makes one of those for the same numbers: upstream has a rule for
// each mention of a node, Jackfield one for each node.
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
		r.Access = letters(r.Access)
		at := slices.IndexFunc(out[since:], func(o rspec.LinuxDeviceCgroup) bool { return r.Allow && compare(o, r) == 0 })
		switch {
		case at >= 0:
			out[since+at].Access = letters(out[since+at].Access + r.Access)
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

func letters(access string) string {
	var b strings.Builder
	for _, c := range "rwm" {
		if strings.ContainsRune(access, c) {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func diffSpecs(tb testing.TB, theirs, ours *rspec.Spec) string {
	tb.Helper()
	return cmp.Diff(foldRules(copySpec(tb, theirs)), foldRules(copySpec(tb, ours)), cmpopts.EquateEmpty())
}

// checkInjection injects on both sides. It reports whether they did.
func checkInjection(tb testing.TB, in injection, dirs []string) bool {
	tb.Helper()
	show := func() string {
		text, err := json.MarshalIndent(map[string]any{"dirs": in.dirs, "spec": in.spec, "devices": in.devices}, "", " ")
		if err != nil {
			tb.Fatal(err)
		}
		return string(text)
	}
	e := engine(tb, dirs)
	ours, theirs, before := copySpec(tb, in.spec), copySpec(tb, in.spec), copySpec(tb, in.spec)
	err := inject(e, ours, in.devices...)
	_, theirErr := upstreamCache(tb, dirs).InjectDevices(theirs, in.devices...)
	if (err == nil) != (theirErr == nil) {
		tb.Fatalf("jackfield: %v\nupstream: %v\non\n%s", err, theirErr, show())
	}
	text, mErr := json.Marshal(in.spec)
	if mErr != nil {
		tb.Fatal(mErr)
	}
	out, textErr := injectText(e, text, in.devices...)
	if (textErr == nil) != (err == nil) {
		tb.Fatalf("the value: %v\nthe text: %v\non\n%s", err, textErr, show())
	}
	if err != nil {
		if diff := cmp.Diff(before, ours); diff != "" {
			tb.Fatalf("half edited: %s\non\n%s", diff, show())
		}
		return false
	}
	if diff := diffSpecs(tb, theirs, ours); diff != "" {
		tb.Fatalf("-upstream +jackfield\n%s\non\n%s", diff, show())
	}
	var fromText rspec.Spec
	if err := json.Unmarshal(out, &fromText); err != nil {
		tb.Fatalf("%v in\n%s", err, out)
	}
	if diff := diffSpecs(tb, theirs, &fromText); diff != "" {
		tb.Fatalf("-upstream +text\n%s\non\n%s", diff, show())
	}
	again := copySpec(tb, ours)
	if err := inject(e, again, in.devices...); err != nil {
		tb.Fatalf("a second time: %v\non\n%s", err, show())
	}
	if diff := cmp.Diff(ours, again, cmpopts.EquateEmpty()); diff != "" {
		tb.Fatalf("a second time it changes: %s\non\n%s", diff, show())
	}
	return true
}

// TestSameSpec compares the OCI specs that come out of both, on generated directories
// and requests.
func TestSameSpec(t *testing.T) {
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

// FuzzSameSpec is TestSameSpec with the choices of a fuzzer.
func FuzzSameSpec(f *testing.F) {
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
