// SPDX-License-Identifier: Apache-2.0

package vswitchdriver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// The sockets of ports are below the same root as the vswitch's endpoint.
func TestDriverOfOpenVSwitchFindsSocketsBelowRoot(t *testing.T) {
	dir, err := os.MkdirTemp("", "ovs") // the test's own directory may have too long a name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := vswitch.Owner{ContainerID: "c1", Interface: "net1"}
	port := vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, SwitchListens: true, Bridge: "br0"}
	if err := os.WriteFile(filepath.Join(dir, port.Name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "db.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(conn, `{"id":1,"error":null,"result":[{"rows":[]},{"rows":[]},
			{"rows":[{"_uuid":["uuid","b"],"name":"br0","datapath_type":"netdev"}]},{"rows":[{"dpdk_initialized":true}]}]}`)
	}()
	driver, err := Open(host, config.Vswitch{Name: "ovs0", Type: config.VswitchOVS, Endpoint: "/db.sock"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Hangs)
	defer cancel()
	if _, err := driver.Ensure(ctx, port); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a file is at the path of the port's socket: %v", err)
	}
}
