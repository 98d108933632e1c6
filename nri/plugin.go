// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/dircheck"
	"github.com/jackfield/jackfield/internal/host/filewatch"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// Options configure a Plugin. The zero value is a plugin on this host with the default
// configuration.
type Options struct {
	Host        hostfs.Root
	Config      *config.Config // nil stands for config.Default
	ConfigGiven bool           // the configuration is given by name: the runtime's does not replace it
	Socket      string         // NRI socket; "" stands for NRI's default
	Index       string         // two digits: the plugin's place in the order
	Name        string
	// Inherited says that the runtime started the plugin and the connection is an inherited
	// descriptor: there is no reconnecting.
	Inherited bool
	// SpecDirs, when not nil, replace the configuration's.
	SpecDirs []string
	// ConfigFile, when not empty, is read again whenever it changes, below ConfigHost.
	ConfigFile string
	// ConfigName is the name of the configuration in messages; "" stands for its file.
	ConfigName string
	ConfigHost hostfs.Root
	// ConfigCopy, when not empty, is where each configuration file that comes into force is
	// copied to.
	ConfigCopy string
	// ConfigFault, when not nil, is why ConfigFile cannot be used: Config is from ConfigCopy.
	ConfigFault error
}

// Plugin is the NRI plugin. The runtime calls its handlers.
type Plugin struct {
	opts     Options
	log      *logrus.Entry
	counters *telemetry.Counters
	started  time.Time
	workers  *deadline.Pool // for work that can hang
	background

	runtime    runtimeLink    // the connection to the runtime
	config     configuration  // what is in force
	containers containerState // what is known of containers
	state      stateDir       // the state directory on the host
	ports      vswitchPorts   // of living pods, on the vswitches
	servers    *servers       // metrics, health and status
	refusals   refusalThrottle
}

// containerState is what the plugin knows of the node's containers.
type containerState struct {
	*containerTable
	ledger          engine.Ledger // what pods have, for the limits of pods
	hotplug         *hotplug      // networks of running containers
	wakeMissedCheck func()        // has checkMissed called
	wakeRestore     func()        // has restoreRecorded called
	removed         removedSandboxes
}

// maxWorkers bounds the goroutines that unresponsive file systems can block.
const maxWorkers = 64

// New returns a plugin that is ready to run: configuration compiled, CDI files loaded, state directory opened.
// New does not wait for any other directory that is unresponsive: the plugin uses the directory when it responds.
func New(opts Options, log *logrus.Logger) (*Plugin, error) {
	if opts.Config == nil {
		opts.Config = config.Default()
	}
	opts.Index, opts.Name = cmp.Or(opts.Index, "50"), cmp.Or(opts.Name, "jackfield")
	if err := errors.Join(api.CheckPluginIndex(opts.Index), api.CheckPluginName(opts.Name)); err != nil {
		return nil, fmt.Errorf("make plugin %q: %w: %w", opts.Index+"-"+opts.Name, err, errdefs.ErrInvalidArgument)
	}
	p := &Plugin{opts: opts, log: logrus.NewEntry(log), counters: telemetry.NewCounters(), started: time.Now(), workers: deadline.NewPool(maxWorkers)}
	p.closing, p.end = context.WithCancel(context.Background())
	p.runtime.capabilities.Store(&capability.Capabilities{})
	p.runtime.timeout.Store(int64(stub.DefaultRequestTimeout))
	p.servers = &servers{p: p, scrapes: deadline.NewPool(maxScrapeWorkers)}
	p.ports.p = p
	p.state.wakePostponed = p.runWhenWoken(0, p.runPostponed)
	p.containers.containerTable = newContainerTable(p.runWhenWoken(0, p.writeRecords))
	p.containers.hotplug = newHotplug(p)
	p.containers.wakeMissedCheck = p.runWhenWoken(missedCheckInterval, p.checkMissed)
	p.containers.wakeRestore = p.runWhenWoken(restoreInterval, p.restoreRecorded)
	p.containers.removed.wakeSweep = p.runWhenWoken(sweepInterval, p.sweepRemoved)
	p.config.dirs = dircheck.New(opts.Host, p.reportDirectory)
	if !p.awaitsConfig() {
		if err := p.applyFirstConfig(); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// awaitsConfig reports whether the runtime may hand over the configuration. Until then none is
// in force, and nothing is created in a state directory.
func (p *Plugin) awaitsConfig() bool { return p.opts.Inherited && !p.opts.ConfigGiven }

// applyFirstConfig puts the first configuration into force, and has a changed file replace it.
func (p *Plugin) applyFirstConfig() error {
	if err := p.applyConfig(p.opts.Config); err != nil {
		return err
	}
	if p.opts.ConfigFault != nil {
		p.rejectConfig(p.opts.ConfigFault)
	} else if p.opts.ConfigFile != "" && p.opts.Config.File() == p.opts.ConfigFile {
		p.copyConfig(p.opts.Config)
	}
	if p.opts.ConfigFile != "" {
		p.config.watch = filewatch.Start(p.opts.ConfigHost, p.opts.ConfigFile, p.reloadConfig)
	}
	return nil
}

// Close frees the plugin's resources. No handler may be running. What hangs on a file system ends
// with the process.
func (p *Plugin) Close() error {
	p.config.watch.Close()
	p.end()
	p.config.dirs.Close()
	err := errors.Join(
		closeWithin(func() error { p.tasks.Wait(); return nil }),
		closeWithin(func() error { p.writeRecords(); return nil }),
		closeWithin(func() error { return errors.Join(p.config.closeEngines(), p.state.closeStores()) }))
	p.refusals.close()
	p.servers.closeAll()
	return err
}

// Counters returns the plugin's counters.
func (p *Plugin) Counters() *telemetry.Counters { return p.counters }

// background are the goroutines that work until the plugin closes.
type background struct {
	closing context.Context
	end     context.CancelFunc // has them end
	tasks   sync.WaitGroup
}

// runWhenWoken has work called in a goroutine of its own: after each call of wakeUp, and after each
// interval; 0 stands for none.
func (b *background) runWhenWoken(interval time.Duration, work func()) (wakeUp func()) {
	wake := make(chan struct{}, 1)
	b.tasks.Go(func() {
		var tick <-chan time.Time
		if interval > 0 {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			tick = ticker.C
		}
		for {
			select {
			case <-b.closing.Done():
				return
			case <-wake:
			case <-tick:
			}
			work()
		}
	})
	return func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// closeTimeout is how long the end of the process waits for a file system.
const closeTimeout = 2 * time.Second

// closeWithin runs f and waits for it. What hangs ends with the process.
func closeWithin(f func() error) error {
	err := deadline.Within(closeTimeout, f)
	if errors.Is(err, deadline.ErrTimeout) {
		return nil
	}
	return err
}

// startupTimeout is how long each step of applying a configuration waits for a directory that can
// hang. A runtime that starts the plugin expects it to register within five seconds.
const startupTimeout = 500 * time.Millisecond

// waitAtStart runs f, and waits for it as long as the start may.
func waitAtStart(f func()) {
	_ = deadline.Within(startupTimeout, func() error { f(); return nil })
}

const (
	// firstRetry and lastRetry are the shortest and the longest wait before a retry.
	firstRetry, lastRetry = time.Second, time.Minute
)

// retryState is of work that is repeated until it succeeds, with growing waits in between. The zero
// value is ready.
type retryState struct {
	wait  time.Duration
	fault string // of the last attempt; "" after a success
}

// recordFailure returns the wait before the next attempt, and whether the failure is to be logged:
// it is not the last one again.
func (r *retryState) recordFailure(err error) (wait time.Duration, isNew bool) {
	isNew = r.fault != err.Error()
	*r = retryState{min(max(2*r.wait, firstRetry), lastRetry), err.Error()}
	return r.wait, isNew
}

// recordSuccess reports whether the last attempt failed.
func (r *retryState) recordSuccess() (failedBefore bool) {
	failedBefore = r.fault != ""
	*r = retryState{}
	return failedBefore
}

// repeat calls work until ctx ends, each time after the wait that work returns, or after a growing one
// where it fails. It counts failures and logs each new one with the text failing. Work calls succeeded
// as soon as it has succeeded, which is logged with the text recovered after a failure.
func (p *Plugin) repeat(ctx context.Context, failing, recovered string, work func(succeeded func()) (wait time.Duration, err error)) {
	var attempts retryState
	for ctx.Err() == nil {
		wait, err := work(func() {
			if attempts.recordSuccess() {
				p.log.Info(recovered)
			}
		})
		if err != nil && ctx.Err() == nil {
			var isNew bool
			wait, isNew = attempts.recordFailure(err)
			p.counters.StagingFailed.Add(1)
			if isNew {
				p.log.WithError(err).WithField("retry", wait.String()).Warn(failing)
			}
		}
		deadline.Sleep(ctx, wait)
	}
}
