// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"time"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// This file has the port of an Add. planPort runs before anything exists, so that a port that the node's policy denies
// leaves nothing behind. createPort records the port before it creates the port. So a Remove, or the reconciler of the
// NRI plugin, finds every port that can exist.

// planPort plans the attachment's port and checks it against the node's policy.
func (a *addition) planPort() error {
	p := &a.Port
	if p.Vswitch == "" {
		return nil
	}
	if path := SocketPath(a.before); path != "" && a.record.Directory == "" {
		return a.Invalid("vswitch", diag.Quote(p.Vswitch),
			"no vswitch, because the device plugin has allocated a port with the socket "+diag.Quote(path)+
				": remove vswitch from the configuration, or resourceName from the network's definition")
	}
	cfg, v, bridge, err := a.findBridge()
	if err != nil {
		return err
	}
	if a.peer, err = a.openDriver(v); err != nil {
		return err
	}
	if a.policy, err = cfg.CompilePolicy(""); err != nil {
		return Fail(codeConfig, "the node's configuration is invalid", "%v", err)
	}
	if _, err := a.policy.Port(a.subject(), policy.Port{Switch: v.Name, Bridge: bridge, VLAN: p.VLAN}); err != nil {
		return Fail(CodeDenied, "the node's policy denies port "+v.Name+"/"+bridge, "%v", err)
	}
	owner := portOwner(a.Key)
	owner.Namespace, owner.Pod = a.Namespace, a.Pod
	a.port = &vswitch.Port{
		Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.Type(a.Device.Kind), Socket: a.socket,
		SwitchListens: a.Device.hostCreates(),
		Bridge:        bridge, MAC: a.MAC, MTU: cmp.Or(p.MTU, v.Defaults.MTU), VLAN: p.VLAN,
		Queues: cmp.Or(p.Queues, v.Defaults.Queues),
		Rate:   cmp.Or(p.Rate, a.Bandwidth["egressRate"]),
	}
	return nil
}

// subject returns the attachment's pod for policy checks.
func (a *addition) subject() policy.Subject {
	return policy.Subject{Namespace: a.Namespace, Pod: a.Pod}
}

// recordPort records the port if the policy permits the pod another port. It counts and records
// under one lock, so that two concurrent ADDs cannot both take the last port.
func (a *addition) recordPort(ctx context.Context) error {
	if a.policy.HasPortLimits(a.subject()) {
		end, _ := ctx.Deadline() // set by Add
		unlock, err := a.st.Lock(time.Until(end))
		if err != nil {
			return recordError(a.Interface, err)
		}
		defer unlock()
		others, err := a.st.CountPorts(a.Key)
		if err != nil {
			return recordError(a.Interface, err)
		}
		if refused, _ := a.policy.LimitPorts(a.subject(), others); refused != nil {
			return Fail(CodeDenied, "the node's policy limits the ports of the pod", "%v", refused)
		}
	}
	a.record.Switch, a.record.ConfigFile, a.record.Port = a.Port.Vswitch, a.ConfigFile, a.port
	return recordError(a.Interface, a.st.Update(&a.record))
}

// createPort records the port with its addresses and creates it. It updates the plan with the
// properties that the vswitch reports.
func (a *addition) createPort(ctx context.Context, addresses Addresses) error {
	a.port.Addresses = addresses.IPs
	if err := a.recordPort(ctx); err != nil {
		return err
	}
	a.Reached.report("port recorded")
	unlock, err := lockPort(ctx, a.st, &a.record)
	if err != nil {
		return err
	}
	defer unlock()
	got, err := a.peer.Ensure(ctx, *a.port)
	a.unreached = vswitch.IsDown(err)
	if err != nil {
		return a.switchError(err)
	}
	a.Reached.report("port created")
	a.port = &got
	if got.Socket == a.socket {
		return nil
	}
	// Some vswitches choose the path of the socket.
	if err := a.checkLength(got.Socket); err != nil {
		return err
	}
	a.socket = got.Socket
	setSocket(a.record.Info, got.Socket)
	return recordError(a.Interface, a.st.Update(&a.record))
}
