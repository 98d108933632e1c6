// SPDX-License-Identifier: Apache-2.0

package vswitchdriver

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/port/vswitch/grout"
	"github.com/jackfield/jackfield/internal/port/vswitch/ovs"
	"github.com/jackfield/jackfield/internal/port/vswitch/vpp"
)

// Open returns the driver of a vswitch. It does not connect.
func Open(host hostfs.Root, v config.Vswitch) (vswitch.Watcher, error) {
	s := vswitch.Switch{Name: v.Name, Endpoint: v.Endpoint, Host: host}
	switch v.Type {
	case config.VswitchOVS:
		return &ovs.Driver{Switch: s, RunDir: v.SocketDir}, nil
	case config.VswitchGrout:
		return &grout.Driver{Switch: s, Grcli: v.Grcli}, nil
	case config.VswitchVPP:
		return &vpp.Driver{Switch: s, Uplink: v.Uplink}, nil
	}
	return nil, fmt.Errorf("vswitch %q: type %q has no driver: %w", v.Name, v.Type, errdefs.ErrNotImplemented)
}
