// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"

	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

// Options are what a Plugin needs to know. The zero value is a plugin on this
// host with the default configuration.
type Options struct {
	Host        hostfs.Root
	Config      *config.Config // nil stands for config.Default
	ConfigGiven bool           // the configuration was asked for by name: the runtime's does not replace it
	Socket      string         // NRI socket; "" stands for NRI's default
	Index       string         // two digits: the plugin's place in the order
	Name        string
	// Inherited says that the runtime started the plugin and the connection is
	// an inherited descriptor: there is no reconnecting.
	Inherited bool
	// SpecDirs, when not nil, take the place of the configuration's.
	SpecDirs []string
	// ConfigFile, when not empty, is read again whenever it changes, below
	// ConfigHost. Config is what it held, as ConfigData.
	ConfigFile string
	// ConfigName is what refusals call the configuration; "" stands for its file.
	ConfigName string
	ConfigHost hostfs.Root
	ConfigData []byte
	// ConfigCopy, when not empty, is where each configuration file that comes into force
	// is copied to.
	ConfigCopy string
	// ConfigFault, when not nil, is why ConfigFile cannot be used: Config is what
	// ConfigCopy holds.
	ConfigFault error
}

// Plugin is the NRI plugin. Its handlers are called by the runtime.
type Plugin struct {
	opts      Options
	log       *logrus.Entry
	core      atomic.Pointer[core]
	can       atomic.Pointer[nriapply.Capabilities]
	timeout   atomic.Int64 // the runtime's for a request, in nanoseconds
	counters  telemetry.Counters
	workers   *workers
	untold    untold
	later     *later
	hotplug   *hotplug
	missed    *missedContainers
	ledger    resolve.Ledger
	creations creations
	hooks     hooksReport
	dirs      *directories
	late      lateStore
	reloading

	drain       drain
	monitor     *monitor
	tracker     *tracker
	glances     *sync.Pool
	size        probe[cdiSize]
	staged      probe[staging.Stats]
	kept        atomic.Pointer[keeper]
	keptDir     string      // whose keeper it is; of use under the lock of changes
	connected   atomic.Bool // registered with the runtime, which said what lives
	runtimeInfo atomic.Pointer[runtimeInfo]
	runtimePID  atomic.Int32 // 0 where it is not known

	mu    sync.Mutex
	stub  stub.Stub
	ready chan struct{} // closed when the present connection is configured
}

// core is what a configuration makes: it is replaced as a whole.
type core struct {
	engine *resolve.Engine
	store  *staging.Store // nil while the state directory does not answer
	cfg    *config.Config
	staged bool // sockets are bound in the staging directory
}

// New makes a plugin ready to run: configuration compiled, CDI files loaded,
// state directory checked. A directory that does not answer is not waited for: it
// is taken up when it does.
func New(opts Options, log *logrus.Logger) (*Plugin, error) {
	if opts.Config == nil {
		opts.Config = config.Default()
	}
	if opts.Index == "" {
		opts.Index = "50"
	}
	if opts.Name == "" {
		opts.Name = "jackfield"
	}
	if err := errors.Join(api.CheckPluginIndex(opts.Index), api.CheckPluginName(opts.Name)); err != nil {
		return nil, fmt.Errorf("make plugin %q: %w: %w", opts.Index+"-"+opts.Name, err, errdefs.ErrInvalidArgument)
	}
	p := &Plugin{opts: opts, log: logrus.NewEntry(log), workers: newWorkers()}
	p.later = newLater(&p.counters.LogDropped)
	p.monitor = &monitor{p: p}
	p.tracker = newTracker(p)
	p.hotplug = newHotplug(p)
	p.missed = newMissedContainers(p)
	p.glances = newGlances(p)
	p.dirs = newDirectories(p)
	p.late.quit = make(chan struct{})
	p.can.Store(&nriapply.Capabilities{})
	p.timeout.Store(int64(stub.DefaultRequestTimeout))
	if !p.awaitsConfig() {
		if err := p.start(); err != nil {
			p.closeUnstarted()
			return nil, err
		}
	}
	return p, nil
}

// awaitsConfig reports whether the runtime may hand over the configuration: until then
// none is in force, and nothing is made in a state directory.
func (p *Plugin) awaitsConfig() bool { return p.opts.Inherited && !p.opts.ConfigGiven }

// start puts the configuration of the start into force.
func (p *Plugin) start() error {
	if err := p.use(p.opts.Config); err != nil {
		return err
	}
	if p.opts.ConfigFault != nil {
		p.refuseConfig(p.opts.ConfigFault)
	} else if p.opts.ConfigData != nil {
		p.copyConfig(p.opts.ConfigData)
	}
	p.watchConfig()
	return nil
}

// closeUnstarted frees what a plugin holds that has no configuration.
func (p *Plugin) closeUnstarted() {
	p.tracker.close()
	p.hotplug.close()
	p.missed.close()
	p.later.close()
	p.dirs.close()
	close(p.late.quit)
}

// Close frees what the plugin holds. No handler may be running.
func (p *Plugin) Close() error {
	if p.core.Load() == nil {
		p.closeUnstarted()
		return nil
	}
	err := p.closeRetired()
	close(p.late.quit)
	p.dirs.close()
	p.workers.close()
	p.hotplug.close()
	p.missed.close()
	p.stopKeeper()
	c := p.core.Load()
	err = errors.Join(err, closeInTime(func() error {
		err := c.engine.Close()
		if c.store != nil {
			err = errors.Join(err, c.store.Close(), c.store.Tidy())
		}
		return err
	}))
	p.later.close()
	p.tracker.close()
	p.monitor.close()
	return err
}

// Counters are the plugin's counts.
func (p *Plugin) Counters() *telemetry.Counters { return &p.counters }

// use puts a configuration into force.
func (p *Plugin) use(cfg *config.Config) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	w := newWaits()
	p.dirs.use(cfg.Directories(p.opts.SpecDirs))
	store, err := p.storeFor(cfg, w)
	if err != nil {
		return err
	}
	staged := p.wouldStage(cfg)
	if store != nil {
		staged = store.Status().Mode == staging.Mounts
	}
	engine, err := p.newEngine(cfg, staged, w)
	if err != nil {
		if c := p.core.Load(); store != nil && (c == nil || c.store != store) {
			err = errors.Join(err, store.Close())
		}
		return err
	}
	now := &core{engine, store, cfg, staged}
	old := p.core.Swap(now)
	p.hotplug.watch(now, w)
	p.keepFor(now)
	p.inForce(cfg, old)
	if old != nil && old.store != nil && old.store != store {
		// Nothing lives in it yet: see storeFor.
		if err := old.store.Close(); err != nil {
			p.log.WithError(err).Warn("close the state directory of the configuration before")
		}
	}
	w.do(p.reportHooks)
	p.monitor.apply(cfg, w)
	return nil
}

func (p *Plugin) newEngine(cfg *config.Config, staged bool, w waits) (*resolve.Engine, error) {
	return resolve.New(p.opts.Host, cfg, resolve.Options{SpecDirs: p.opts.SpecDirs, Ledger: &p.ledger, HooksDirs: hooksDirs,
		Staged: func() bool { return staged }, Kubelet: askKubelet, Answers: p.dirs.check, Patience: w.left(), ConfigName: p.opts.ConfigName})
}

// wouldStage is how sockets most likely get into containers, as long as the state
// directory does not tell.
func (p *Plugin) wouldStage(cfg *config.Config) bool {
	return cfg.Sockets.Staging == config.StagingMount || cfg.Sockets.Staging != config.StagingDirectory && p.opts.Host.Dir() == "/"
}

// configure puts the configuration that a runtime handed over into force.
func (p *Plugin) configure(data []byte) error {
	cfg, err := config.Parse(data, "the runtime's plugin configuration")
	if err != nil {
		return err
	}
	if p.counters.Connections.Load() > 0 {
		// A runtime that was restarted hands it over again.
		if err := keepsStore(p.core.Load().cfg, cfg); err != nil {
			return err
		}
	}
	if err := p.use(cfg); err != nil {
		return err
	}
	p.handedOver.Store(true)
	return nil
}

// Run serves the runtime until ctx ends. When the connection is lost the plugin
// connects again as soon as the runtime listens. A plugin that the runtime started ends
// with its connection.
func (p *Plugin) Run(ctx context.Context) error {
	go p.watchHooks(ctx)
	warnings := &connectionWarnings{log: p.log}
	delay := connectInterval
	for {
		var conn net.Conn // nil for the one that the runtime passed on
		if !p.opts.Inherited {
			if conn = p.connectToRuntime(ctx, warnings); conn == nil {
				p.logCounters()
				return nil
			}
		}
		p.runtimePID.Store(runtimePID(conn))
		registrations := p.counters.Connections.Load()
		err := p.serve(ctx, conn)
		if ctx.Err() != nil {
			p.logCounters()
			return nil
		}
		if p.opts.Inherited {
			p.logCounters()
			return err
		}
		if p.counters.Connections.Load() > registrations {
			// The runtime is being restarted.
			warnings.reset()
			delay = connectInterval
		}
		warnings.warn(err)
		wait(ctx, delay)
		delay = min(2*delay, maxRegisterDelay)
	}
}

// serve is one connection, from registering to its end.
func (p *Plugin) serve(ctx context.Context, conn net.Conn) error {
	// The connection outlives ctx until the calls under way have their answers.
	outlives, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := context.AfterFunc(ctx, func() {
		p.drain.wait(p.requestTimeout())
		cancel()
	})
	defer ended()
	defer p.connected.Store(false)
	options := []stub.Option{
		stub.WithPluginName(p.opts.Name),
		stub.WithLogger(stubLogger{p.log}),
		stub.WithTTRPCOptions(nil, []ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(addNRIVersion)}),
		// Without an answer there is no container: an attachment that was granted
		// must not be missing silently.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}),
		// The stub calls back instead of leaving the process.
		stub.WithOnClose(func() {}),
	}
	if os.Getenv(api.PluginIdxEnvVar) == "" {
		options = append(options, stub.WithPluginIdx(p.opts.Index))
	}
	if conn != nil {
		defer conn.Close() // the stub leaves it open when it cannot start
		options = append(options, stub.WithConnection(conn))
	}
	s, err := stub.New(p, options...)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	p.mu.Lock()
	p.stub, p.ready = s, ready
	p.mu.Unlock()

	patience := 2 * s.RegistrationTimeout()
	done := make(chan error, 1)
	go func() { done <- s.Run(outlives) }()
	watchdog := time.NewTimer(patience)
	defer watchdog.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ready:
			ready = nil
			watchdog.Stop()
		case <-watchdog.C:
			// The stub waits for the runtime's Configure without a limit, and holds
			// its lock meanwhile: it is left behind.
			return fmt.Errorf("register with the runtime: no answer within %v: %w", patience, errdefs.ErrUnavailable)
		}
	}
}

// configured says that the present connection is up.
func (p *Plugin) configured() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready != nil {
		close(p.ready)
		p.ready = nil
	}
}

// noteTimeout keeps the time that the runtime gives for a request, from Configure,
// where the stub has it. Runtimes before NRI 0.7 do not say; theirs is the default.
func (p *Plugin) noteTimeout() {
	p.mu.Lock()
	defer p.mu.Unlock()
	timeout := stub.DefaultRequestTimeout
	if p.stub != nil && p.stub.RequestTimeout() > 0 {
		timeout = p.stub.RequestTimeout()
	}
	p.timeout.Store(int64(timeout))
}

func (p *Plugin) requestTimeout() time.Duration { return time.Duration(p.timeout.Load()) }

func (p *Plugin) logCounters() {
	fields := logrus.Fields{}
	for name, value := range p.counters.Each {
		fields[name] = value
	}
	p.log.WithFields(fields).Info("ended")
}

// stubLogger passes the NRI library's messages on as details.
type stubLogger struct{ log *logrus.Entry }

func (l stubLogger) Debugf(_ context.Context, format string, args ...any) {
	l.log.Debugf(format, args...)
}
func (l stubLogger) Infof(_ context.Context, format string, args ...any) {
	l.log.Debugf(format, args...)
}
func (l stubLogger) Warnf(_ context.Context, format string, args ...any) {
	l.log.Warnf(format, args...)
}
func (l stubLogger) Errorf(_ context.Context, format string, args ...any) {
	l.log.Errorf(format, args...)
}
