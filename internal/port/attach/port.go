// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/port/vswitchdriver"
)

const (
	// DefaultTimeout applies to networks that set no timeout. After a timeout, the reconciler of
	// the NRI plugin removes a port that the vswitch created too late.
	DefaultTimeout = 10 * time.Second
	// MinTimeout and MaxTimeout are the bounds of Attachment.Timeout.
	MinTimeout, MaxTimeout = 3 * time.Second, 2 * time.Minute
	// undoTime is the last part of an Add's time. It is reserved for removing objects that were
	// created too late.
	undoTime = 2 * time.Second
)

// LimitTime returns a context that ends at the deadline of an Add. Without a port it has no
// deadline.
func (t *Attachment) LimitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.Port.Vswitch == "" {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, cmp.Or(t.Timeout, DefaultTimeout))
}

// limitCreation returns the context for the creating steps of an Add. It ends early enough to undo
// them.
func limitCreation(ctx context.Context) (context.Context, context.CancelFunc) {
	end, isLimited := ctx.Deadline()
	if !isLimited {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-undoTime))
}

// limitSwitch returns a context for one operation's requests to a vswitch.
func limitSwitch(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(timeout, DefaultTimeout))
}

// loadNodeConfig loads the node's configuration and returns it with the named vswitch.
func (t *Attachment) loadNodeConfig(file, name string) (*config.Config, config.Vswitch, error) {
	cfg, err := config.LoadOrCopy(t.Root, file)
	if errdefs.IsNotFound(err) {
		otherwise := ""
		if file == config.DefaultPath {
			otherwise = ", or run jackfield-nri, which keeps a copy of its configuration in " + config.DefaultCopyPath
		}
		return nil, config.Vswitch{}, Fail(codeConfig, "the node's configuration is missing",
			"create %s with the vswitch %q under vswitches%s", file, name, otherwise)
	}
	if err != nil {
		return nil, config.Vswitch{}, Fail(codeConfig, "the node's configuration is invalid", "%v", err)
	}
	t.loadedFile = cfg.File()
	v, ok := cfg.Vswitch(name)
	if !ok {
		names := []string{}
		for _, v := range cfg.Vswitches {
			names = append(names, v.Name)
		}
		return nil, v, Fail(codeConfig, "vswitch "+diag.Quote(name)+" is not in the node's configuration",
			"vswitches of %s has %s%s",
			cfg.File(), cmp.Or(strings.Join(names, ", "), "none"), diag.Suggest(name, names...))
	}
	return cfg, v, nil
}

// openSwitch returns the driver of a vswitch in the node's configuration.
func (t *Attachment) openSwitch(file, name string) (vswitch.Driver, error) {
	_, v, err := t.loadNodeConfig(file, name)
	if err != nil {
		return nil, err
	}
	return t.openDriver(v)
}

// openDriver returns the driver of a vswitch.
func (t *Attachment) openDriver(v config.Vswitch) (vswitch.Driver, error) {
	if t.driver != nil {
		return t.driver, nil
	}
	return vswitchdriver.Open(t.Root, v)
}

// switchError adds a code to an error of a vswitch, and a remedy if the vswitch is unreachable. A
// refusal that concerns a key of the network is located in the network's configuration.
func (t *Attachment) switchError(err error) error {
	var refusal *vswitch.Refusal
	var unavailable *vswitch.UnavailableError
	// An unreachable vswitch comes before any other error, because a runtime may repeat an operation with code 11
	// (try again later). A refusal is permanent until somebody changes the configuration.
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unavailable):
		remedy := "check that the vswitch runs, and vswitches." + unavailable.Switch +
			".endpoint of the node's configuration"
		if unavailable.Down {
			remedy = "start the vswitch, or correct vswitches." + unavailable.Switch +
				".endpoint of the node's configuration"
		}
		return Fail(codeLater, "the vswitch is unreachable", "%v: %s", err, remedy)
	case errors.Is(err, context.DeadlineExceeded) || errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err):
		return Fail(codeLater, "the vswitch is unreachable", "%v", err)
	case errdefs.IsAlreadyExists(err):
		return Fail(CodeExists, "the port already exists", "%v", err)
	case errors.As(err, &refusal):
		place, named := t.loadedFile+": ", *refusal
		if !strings.HasPrefix(refusal.Field, "vswitches.") {
			place, named.Field = t.Source.Place(refusal.Field), t.Source.Name(refusal.Field)
		}
		return Fail(CodeSwitch, "the vswitch refuses the port"+strings.TrimSuffix(": "+named.Field, ": "), "%s%v",
			place, &named)
	}
	return ioError("vswitch", err)
}

// portOwner returns the owner of an attachment's port. Container ID and interface alone identify
// the port.
func portOwner(k record.Key) vswitch.Owner {
	return vswitch.Owner{ContainerID: k.ContainerID, Interface: k.Interface, Network: k.Network}
}

// CheckBridge checks that the vswitch and the bridge of an attachment's port are in the node's configuration.
func (t *Attachment) CheckBridge() error {
	if t.Port.Vswitch == "" {
		return nil
	}
	_, _, _, err := t.findBridge()
	return err
}

// findBridge returns the node's configuration, and the vswitch and the bridge that the attachment's
// port uses.
func (t *Attachment) findBridge() (*config.Config, config.Vswitch, string, error) {
	cfg, v, err := t.loadNodeConfig(t.ConfigFile, t.Port.Vswitch)
	if err != nil {
		return nil, v, "", err
	}
	bridge := cmp.Or(t.Port.Bridge, v.Defaults.Bridge)
	if bridge != "" && !slices.Contains(v.Bridges, bridge) {
		return nil, v, "", t.Invalid("bridge", diag.Quote(bridge),
			"one of the bridges of vswitch "+v.Name+" in "+cfg.File()+": "+
				cmp.Or(strings.Join(v.Bridges, ", "), "none")+diag.Suggest(bridge, v.Bridges...))
	}
	return cfg, v, bridge, nil
}

// lockPort takes the lock of a record with a port, so that the reconciler of the NRI plugin cannot
// re-create the port during its removal.
func lockPort(ctx context.Context, st *record.Store, r *record.Record) (unlock func(), err error) {
	if r.Port == nil {
		return func() {}, nil
	}
	end, _ := ctx.Deadline() // set by every caller
	unlock, err = st.LockRecord(r.Key, time.Until(end))
	if err != nil {
		return nil, recordError(r.Interface, err)
	}
	if unlock == nil {
		return nil, Fail(codeLater, "try again later", "another process has changed or removed record %q meanwhile",
			r.FileName())
	}
	return unlock, nil
}

// listPorts lists Jackfield's ports on a vswitch in the node's configuration.
func (t *Attachment) listPorts(ctx context.Context, file, name string) (vswitch.Driver, []vswitch.Port, error) {
	driver, err := t.openSwitch(file, name)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := limitSwitch(ctx, t.Timeout)
	defer cancel()
	ports, err := driver.List(ctx)
	return driver, ports, t.switchError(err)
}
