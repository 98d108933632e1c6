// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/dircheck"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// Options configure a Plugin. The zero value is a plugin on this host with the default configuration.
type Options struct {
	Host        hostfs.Root
	Config      *config.Config // nil stands for config.Default
	ConfigGiven bool           // a flag names the configuration: the runtime's does not replace it
	Socket      string         // NRI socket; "" stands for NRI's default
	Index       string         // two digits: the plugin's place in the order
	IndexInEnv  bool           // Index is from the environment, which the NRI library reads itself
	Name        string
	// Inherited means that the runtime started the plugin and the connection is an inherited descriptor. The
	// plugin cannot connect again.
	Inherited bool
	// SpecDirs, when not nil, replace the configuration's.
	SpecDirs []string
	// ConfigFile, when not empty, is read again whenever it changes, below ConfigHost.
	ConfigFile string
	// ConfigName is the name of the configuration in messages; "" stands for its file.
	ConfigName string
	ConfigHost hostfs.Root
	// ConfigCopy, when not empty, is the file that receives a copy of each configuration that comes into force.
	ConfigCopy string
	// ConfigFault, when not nil, is why ConfigFile cannot be used: Config is from ConfigCopy.
	ConfigFault error
}

// Plugin is the NRI plugin. Its handlers, which the runtime calls, combine the parts. No part refers to the
// plugin.
type Plugin struct {
	*daemon
	opts       Options
	calls      *runtimeCalls
	runtime    *runtimeLink
	config     *configuration
	containers *containerTable
	ledger     *engine.Ledger
	records    *statusRecords
	state      *stateDir
	hotplug    *hotplug
	restored   *restoredContainers
	missed     *missedContainers
	removed    *removedSandboxes
	ports      *vswitchPorts
	numbers    *deviceNumbers
	hookDirs   *hookDirs
	audit      *auditLog
	outcomes   *outcomes
	creator    *creator
	validator  *validator
	endpoints  *endpoints
	servers    *httpServers
}

// New returns a plugin that is ready to run: configuration compiled, CDI files loaded, state directory opened.
// New does not wait for any other directory that is unresponsive: the plugin uses the directory when it
// responds.
func New(opts Options, log *logrus.Logger) (*Plugin, error) {
	if opts.Config == nil {
		opts.Config = config.Default()
	}
	opts.Index, opts.Name = cmp.Or(opts.Index, "50"), cmp.Or(opts.Name, "jackfield")
	if err := errors.Join(api.CheckPluginIndex(opts.Index), api.CheckPluginName(opts.Name)); err != nil {
		return nil, fmt.Errorf("make plugin %q: %w: %w", opts.Index+"-"+opts.Name, err, errdefs.ErrInvalidArgument)
	}
	p := newPlugin(opts, newDaemon(opts.Host, log))
	// The runtime can hand over another configuration. Until then nothing is created in a state directory.
	if !opts.Inherited || opts.ConfigGiven {
		if err := p.config.start(); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// newPlugin creates the parts and connects them. A part refers only to parts created before it; three callbacks go
// the other way.
func newPlugin(opts Options, d *daemon) *Plugin {
	p := &Plugin{daemon: d, opts: opts, ledger: &engine.Ledger{}}
	var inForce atomic.Pointer[core]
	current := inForce.Load

	// The state of containers.
	recordsChanged, hotplugWake := newWakeup(), newWakeup()
	p.containers = newContainerTable(p.ledger, recordsChanged.send, hotplugWake.send)
	p.records = newStatusRecords(d, p.containers, recordsChanged)
	p.state = newStateDir(d, p.records)

	// The connection and the configuration.
	dirs := dircheck.New(opts.Host, func(dir dircheck.Directory, was time.Duration) {
		reportDirectory(d.log, dir, was, p.hotplug.markAllDirty)
	})
	p.calls = newRuntimeCalls(d, dirs.Faults)
	p.runtime = newRuntimeLink(d, opts, p.calls)
	p.config = newConfiguration(d, opts, &inForce, p.containers, dirs, p.state, p.followConfig)

	// Reports.
	p.audit = &auditLog{daemon: d}
	generation := func() uint64 { return p.config.describe().Generation }
	p.outcomes = &outcomes{daemon: d, audit: p.audit, generation: generation}
	p.hookDirs = &hookDirs{daemon: d, current: current}

	// Background work.
	p.hotplug = newHotplug(d, current, p.state, p.containers, dirs.Check, hotplugWake)
	p.ports = newVswitchPorts(d, p.containers.liveSandboxes)
	p.removed = newRemovedSandboxes(d, current, p.containers.liveSandboxes)
	p.restored = newRestoredContainers(d, current, p.state, p.containers)
	p.numbers = newDeviceNumbers(d, p.containers, p.audit)
	p.missed = newMissedContainers(d, current, p.runtime, p.containers, p.outcomes)

	// The work of the larger handlers.
	p.creator = &creator{daemon: d, calls: p.calls, runtime: p.runtime, config: p.config, containers: p.containers,
		ledger: p.ledger, state: p.state, hotplug: p.hotplug, restored: p.restored, outcomes: p.outcomes}
	p.validator = &validator{daemon: d, current: current, runtime: p.runtime, containers: p.containers,
		outcomes: p.outcomes, own: opts.Index + "-" + opts.Name}

	// HTTP.
	p.endpoints = &endpoints{counters: d.counters, calls: p.calls, runtime: p.runtime, config: p.config,
		containers: p.containers, state: p.state, ports: p.ports, numbers: p.numbers, hookDirs: p.hookDirs, audit: p.audit,
		started: time.Now(), scrapes: deadline.NewPool(maxScrapeWorkers)}
	p.servers = &httpServers{daemon: d, endpoints: p.endpoints}
	return p
}

// followConfig passes a new configuration to the parts that keep something open for it.
func (p *Plugin) followConfig(c *core) {
	p.hotplug.followConfig(c.cfg)
	p.ports.followConfig(c.cfg)
	p.hookDirs.followConfig(c)
	p.audit.followConfig(c.cfg)
	p.servers.followConfig(c.cfg)
}

// reportDirectory logs that a configured directory became unresponsive, or responds again, and then calls
// recovered, because changes in the directory were not noticed.
func reportDirectory(log *logrus.Entry, d dircheck.Directory, was time.Duration, recovered func()) {
	log = log.WithField("directory", d.Path).WithField("use", d.Use)
	if !d.Since.IsZero() {
		log.Error("a directory is unresponsive: containers that need it are refused until it answers; " +
			"check the file system mounted there")
		return
	}
	log.WithField("after", was.Round(time.Millisecond).String()).Info("the directory answers again")
	recovered()
}

// Run serves the runtime until ctx ends. When the connection is lost the plugin connects again as soon as the
// runtime listens. A plugin that the runtime started ends with its connection.
func (p *Plugin) Run(ctx context.Context) error {
	defer func() { p.log.WithFields(p.counters.Totals()).Info("ended") }()
	return p.runtime.run(ctx, p)
}

// Close frees the plugin's resources. No handler may be running. Calls that hang on a file system end with the
// process.
func (p *Plugin) Close() error {
	p.config.watch.Close()
	p.end()
	p.config.dirs.Close()
	err := errors.Join(
		closeWithin(func() error { p.tasks.Wait(); return nil }),
		closeWithin(func() error { p.records.write(); return nil }),
		closeWithin(func() error { return errors.Join(p.config.close(), p.state.close()) }))
	p.outcomes.refusals.Close()
	p.servers.close()
	p.audit.close()
	return err
}

// Reopen makes the plugin reopen the audit file before the next line: for SIGHUP, after a log was rotated. The
// plugin notices a renamed file by itself.
func (p *Plugin) Reopen() {
	if file := p.audit.file.Load(); file != nil {
		file.stale.Store(true)
	}
}

// Counters returns the plugin's counters.
func (p *Plugin) Counters() *telemetry.Counters { return p.counters }

// ConfigStatus describes the configuration in force, and why a newer one is not.
func (p *Plugin) ConfigStatus() ConfigStatus { return p.config.describe() }
