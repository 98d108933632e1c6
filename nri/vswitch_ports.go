// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"reflect"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/reconcile"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/port/vswitchdriver"
)

// vswitchPorts re-creates the ports of living pods that a vswitch has lost. A reconciler works in its own
// goroutines, so no handler waits for a vswitch. Without vswitches in the configuration there is none.
type vswitchPorts struct {
	*daemon
	sandboxes func() (live map[string]bool, known bool)

	mu         sync.Mutex
	switches   []config.Vswitch
	reconciler *reconcile.Reconciler // nil for none
	endWork    context.CancelFunc    // of the reconciler
}

func newVswitchPorts(d *daemon, sandboxes func() (live map[string]bool, known bool)) *vswitchPorts {
	return &vswitchPorts{daemon: d, sandboxes: sandboxes}
}

// followConfig replaces the reconciler if the configuration has other vswitches.
func (v *vswitchPorts) followConfig(cfg *config.Config) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if reflect.DeepEqual(cfg.Vswitches, v.switches) || v.closing.Err() != nil {
		return
	}
	if v.reconciler != nil {
		v.endWork() // a call of a vswitch that is under way ends by itself
		v.reconciler = nil
	}
	v.switches = cfg.Vswitches
	drivers := make(map[string]vswitch.Watcher)
	for _, s := range cfg.Vswitches {
		driver, err := vswitchdriver.Open(v.host, s)
		if err != nil {
			v.log.WithError(err).WithField("vswitch", s.Name).Error("ports of running pods are not re-created on this vswitch")
			continue
		}
		drivers[s.Name] = driver
	}
	if len(drivers) == 0 {
		return
	}
	r := reconcile.New(reconcile.Options{Switches: drivers, Host: v.host, StateDir: record.DefaultDir,
		Sandboxes: v.sandboxes, Report: v.reportEvent})
	ctx, end := context.WithCancel(v.closing)
	v.reconciler, v.endWork = r, end
	v.tasks.Go(func() { r.Run(ctx) })
}

// sandboxesChanged triggers a check of the ports. It does not wait.
func (v *vswitchPorts) sandboxesChanged() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reconciler != nil {
		v.reconciler.Trigger()
	}
}

// listStatus returns the state of each vswitch of the configuration.
func (v *vswitchPorts) listStatus() []vswitch.Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reconciler == nil {
		return nil
	}
	found := v.reconciler.Status()
	var out []vswitch.Status
	for _, s := range v.switches {
		now := found[s.Name]
		now.Name, now.Type, now.Endpoint = s.Name, string(s.Type), s.Endpoint
		out = append(out, now)
	}
	return out
}

// maxLoggedPorts bounds the ports in one line. A vswitch whose database is lost has lost all its ports.
const maxLoggedPorts = 5

// reportEvent logs the changes of ports in one line, and each port at level debug.
func (v *vswitchPorts) reportEvent(e reconcile.Event) {
	log := v.log.WithField("vswitch", e.Switch)
	level, text := logrus.InfoLevel, ""
	switch e.Action {
	case reconcile.Recreated:
		text = "the vswitch had lost ports of running pods; re-created them"
	case reconcile.Changed:
		text = "ports of running pods differed on the vswitch; corrected them"
	case reconcile.Removed:
		text = "removed ports of pods that are gone"
	case reconcile.Failed:
		level, text = logrus.WarnLevel, "cannot keep the ports of running pods on the vswitch; trying again every few seconds"
	}
	var names []string
	for _, c := range e.Changes {
		one := log
		if c.Err != nil {
			one = log.WithError(c.Err)
		}
		if owner := c.Port.Owner; c.Port.Name != "" {
			name := c.Port.Name
			one = one.WithFields(logrus.Fields{"port": name, "sandbox": owner.ContainerID, "interface": owner.Interface})
			if owner.Pod != "" {
				pod := owner.Namespace + "/" + owner.Pod
				name += " (" + pod + ")"
				one = one.WithField("pod", pod)
			}
			names = append(names, name)
		}
		one.WithField("action", e.Action).Debug("port of the vswitch")
	}
	if err := e.Changes[0].Err; err != nil {
		log = log.WithError(err)
	}
	if len(names) > 0 {
		shown := strings.Join(names[:min(len(names), maxLoggedPorts)], ", ")
		log = log.WithFields(logrus.Fields{"count": len(names), "ports": shown})
	}
	log.Log(level, text)
}
