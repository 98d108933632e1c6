// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// hungSwitch answers no call until its context ends, and then takes as long as a driver may.
type hungSwitch struct{ calls []string }

func (h *hungSwitch) hang(ctx context.Context, call string) error {
	h.calls = append(h.calls, call)
	<-ctx.Done()
	return ctx.Err()
}

func (h *hungSwitch) Ensure(ctx context.Context, _ vswitch.Port) (vswitch.Port, error) {
	defer time.Sleep(vswitch.CleanupTime)
	return vswitch.Port{}, h.hang(ctx, "ensure")
}

func (h *hungSwitch) Remove(ctx context.Context, _ vswitch.Owner) error { return h.hang(ctx, "remove") }

func (h *hungSwitch) Probe(context.Context) error { return nil }

func (h *hungSwitch) List(ctx context.Context) ([]vswitch.Port, error) {
	return nil, h.hang(ctx, "list")
}

// keySource describes keys as they are.
type keySource struct{}

func (keySource) Name(key string) string { return key }
func (keySource) Place(string) string    { return "" }
func (keySource) Value(string) string    { return "nothing" }

func noAddresses(context.Context) (Addresses, error) { return Addresses{}, nil }

// newPortRequest returns an attachment with a port on a host with a configuration and a vswitch.
func newPortRequest(t *testing.T, driver vswitch.Driver) *Attachment {
	t.Helper()
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/jackfield"), 0o755); err != nil {
		t.Fatal(err)
	}
	const config = `
vswitches: [{name: ovs0, type: ovs, bridges: [br0]}]
policy: {rules: [{name: all, for: {namespaces: [""]}, allow: {ports: ["ovs0/br0"]}}]}
`
	if err := os.WriteFile(filepath.Join(root, "etc/jackfield/config.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return &Attachment{
		Root: host, Log: io.Discard, Source: keySource{}, driver: driver,
		Key:    record.Key{Network: "fast", ContainerID: "c1", Interface: "net1"},
		Device: Device{Kind: deviceinfo.TypeVhostUser, Field: map[string]string{"mode": "server"}},
		Port:   PortRequest{Vswitch: "ovs0", Bridge: "br0"}, ConfigFile: "/etc/jackfield/config.yaml",
		SocketDir: "/var/run/jackfield/sockets", StateDir: "/var/run/jackfield/cni", ClaimsDir: "/var/run/jackfield/claims", InfoDir: "/var/run/devinfo",
	}
}

// Add and Remove end within the attachment's timeout, whichever call of the vswitch hangs. What the vswitch may still
// have stays recorded.
func TestHungSwitchTakesTheTimeoutAtMost(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: DefaultTimeout, MinTimeout: MinTimeout, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			hung := &hungSwitch{}
			a := newPortRequest(t, hung)
			a.Timeout = timeout
			begin := time.Now()
			err := a.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil })
			if took := time.Since(begin); err == nil || AsError(err).Code != codeLater || took != want {
				t.Errorf("timeout %v: Add ends after %v: %v", timeout, took, err)
			}
			begin = time.Now()
			err = a.Remove(t.Context())
			if took := time.Since(begin); err == nil || AsError(err).Code != codeLater || took != want {
				t.Errorf("timeout %v: Remove ends after %v: %v", timeout, took, err)
			}
			if len(hung.calls) != 3 {
				t.Errorf("calls of the vswitch: %q", hung.calls)
			}
			store, err := record.Find(a.Root, a.StateDir)
			if err != nil || store == nil {
				t.Fatal(err)
			}
			defer store.Close()
			if r, err := store.Read(a.Key); err != nil || r == nil || r.Port == nil {
				t.Errorf("the record is %+v, %v", r, err)
			}
		})
	}
}
