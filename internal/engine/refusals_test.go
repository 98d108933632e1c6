// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// manyNames are the CDI devices of the largest annotation.
const manyNames = 1024

// newRefusingEngine returns an engine with 300 rules of 30 patterns with several stars, and a request for 1,024 devices that the
// node has. The rules grant them to namespace granted, and nothing to any other.
func newRefusingEngine(tb testing.TB, opts Options) (*Engine, *Request) {
	dir := tb.TempDir()
	var devices, names []string
	long := strings.Repeat("-net.x", 6)
	for i := range manyNames {
		devices = append(devices, fmt.Sprintf(`{"name":"d%d%s","containerEdits":{"env":["D%d=1"]}}`, i, long, i))
		names = append(names, fmt.Sprintf("vendor.com/net=d%d%s", i, long))
	}
	file := `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[` + strings.Join(devices, ",") + `]}`
	if err := os.WriteFile(filepath.Join(dir, "net.json"), []byte(file), 0o644); err != nil {
		tb.Fatal(err)
	}
	cfg, err := config.Parse([]byte("cdi: {specDirs: ["+dir+"]}\n"+manyRules), "/etc/jackfield/config.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	e, err := New(hostfs.Host(), cfg, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = e.Close() })
	return e, &Request{SandboxID: "sandbox", ContainerID: "c", Namespace: "refused", Pod: "p", Container: "c",
		Annotations: map[string]string{"devices.jackfield.dev": strings.Join(names, ",")}}
}

// manyRules is a policy of 300 rules of 30 patterns each.
var manyRules = func() string {
	var b strings.Builder
	b.WriteString("policy:\n  rules:\n")
	for i := range 300 {
		fmt.Fprintf(&b, "  - name: r%d\n    for: {namespaces: [tenant-%d]}\n    allow:\n      cdi:\n", i, i)
		for j := range 30 {
			fmt.Fprintf(&b, "      - \"*vendor*/*net*=*net*x%d-%d*\"\n", i, j)
		}
	}
	b.WriteString("  - {name: last, for: {namespaces: [granted]}, allow: {cdi: [\"vendor.com/net=*\"]}}\n")
	return b.String()
}()

// A pod without any grant must not keep the node busy. Comparing the patterns of rules for other subjects takes more than 5 s.
func TestManyRefusalsTakeLittleTime(t *testing.T) {
	e, req := newRefusingEngine(t, Options{})
	var err error
	testkit.Cheap(t, 500*time.Millisecond, func() { _, err = e.Resolve(t.Context(), req) })
	var refusals *Error
	if !errors.As(err, &refusals) || len(refusals.Errs) != manyNames {
		t.Errorf("%d refusals: %.300v", manyNames, err)
	}
}

// The search for the closest rule is bounded for a container, and complete for an administrator.
func TestFirstRefusalsNameClosestRule(t *testing.T) {
	for _, tc := range []struct {
		opts Options
		want int
	}{{Options{}, MaxExplanations}, {Options{ForAdministrator: true}, manyNames}} {
		e, req := newRefusingEngine(t, tc.opts)
		_, err := e.Resolve(t.Context(), req)
		var refusals *Error
		if !errors.As(err, &refusals) {
			t.Fatal(err)
		}
		got := 0
		for _, err := range refusals.Errs {
			if strings.Contains(err.Error(), `closest rule "last"`) && strings.Contains(err.Error(), "add to policy.rules") {
				got++
			}
		}
		if got != tc.want {
			t.Errorf("%+v: %d of %d refusals name the closest rule, want %d", tc.opts, got, len(refusals.Errs), tc.want)
		}
	}
}

// BenchmarkRefusals compares 1,024 refused names with the same names, granted, under 300 rules of 30 patterns.
func BenchmarkRefusals(b *testing.B) {
	for _, namespace := range []string{"refused", "granted"} {
		b.Run(namespace, func(b *testing.B) {
			e, req := newRefusingEngine(b, Options{})
			req.Namespace = namespace
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Resolve(b.Context(), req); (err == nil) != (namespace == "granted") {
					b.Fatal(err)
				}
			}
		})
	}
}
