// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/dircheck"
	"github.com/jackfield/jackfield/internal/host/filewatch"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/source/hooksd"
	"github.com/jackfield/jackfield/internal/source/kubelet"
)

const (
	// retireAfter is longer than any request runs that began under an earlier configuration.
	retireAfter = time.Minute
	// maxRetired is how many earlier configurations stay open for that time. A request that is
	// still under way after more changes may fail.
	maxRetired = 8
)

// configuration is the configuration in force, with the earlier configurations whose requests can still run.
// A change replaces the core as a whole.
type configuration struct {
	*daemon
	opts       Options
	core       *atomic.Pointer[core]
	containers *containerTable
	dirs       *dircheck.Checker // of the configuration's directories
	state      *stateDir         // opened with the first configuration
	follow     func(*core)       // passes a new configuration to the parts that depend on it

	handedOver atomic.Bool      // the runtime handed it over: the file does not count
	watch      *filewatch.Watch // nil without a file
	changing   sync.Mutex       // one change at a time
	copying    sync.Mutex       // one copy at a time

	mu      sync.Mutex
	status  ConfigStatus
	retired []retiredCore // the oldest first
}

// retiredCore is an earlier configuration that requests can still use.
type retiredCore struct {
	*core
	timer *time.Timer // closes it
}

// core is one configuration with the engine and the hooks that it configures.
type core struct {
	engine *engine.Engine
	cfg    *config.Config
	hooks  *hooksd.Registry
}

// ConfigStatus describes the configuration in force.
type ConfigStatus struct {
	status.Config
	// LastError is why the newest file is not in force, or nil. Failures counts these errors.
	LastError error
	Failures  uint64
}

func newConfiguration(d *daemon, opts Options, core *atomic.Pointer[core], containers *containerTable,
	dirs *dircheck.Checker, state *stateDir, follow func(*core)) *configuration {
	return &configuration{daemon: d, opts: opts, core: core, containers: containers, dirs: dirs, state: state,
		follow: follow}
}

// start puts the configuration of the options into force, and watches its file.
func (c *configuration) start() error {
	if err := c.apply(c.opts.Config); err != nil {
		return err
	}
	if c.opts.ConfigFault != nil {
		c.reject(c.opts.ConfigFault)
	} else if c.opts.ConfigFile != "" && c.opts.Config.File() == c.opts.ConfigFile {
		c.writeCopy(c.opts.Config)
	}
	if c.opts.ConfigFile != "" {
		c.watch = filewatch.Start(c.opts.ConfigHost, c.opts.ConfigFile, c.reload)
	}
	return nil
}

// describe returns the status of the configuration in force, and why a newer one is not.
func (c *configuration) describe() ConfigStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// applyHandedOver puts the configuration that the runtime handed over into force.
func (c *configuration) applyHandedOver(data []byte) error {
	cfg, err := config.Parse(data, "the runtime's plugin configuration")
	if err == nil {
		err = c.apply(cfg)
	}
	if err == nil {
		c.handedOver.Store(true)
	}
	return err
}

// apply puts a configuration into force.
func (c *configuration) apply(cfg *config.Config) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	old := c.core.Load()
	if old != nil {
		if err := checkSameStore(old.cfg, cfg); err != nil {
			return err
		}
	}
	c.dirs.Replace(cfg.Directories(c.opts.SpecDirs))
	if old == nil {
		if err := c.state.open(cfg); err != nil {
			return err
		}
	}
	hooks := hooksd.New(c.host, cfg.Hooks.Dirs, hooksd.Options{})
	engine, err := engine.New(c.host, cfg, engine.Options{
		SpecDirs: c.opts.SpecDirs, ConfigName: c.opts.ConfigName, Ledger: c.containers.ledger, Hooks: hooks.Hooks,
		Holders:       c.containers.listHolders,
		FindSocketDir: staging.SocketDirFinder(c.host, cfg.StateDir, ""), Staged: c.state.isStaged,
		Kubelet: kubelet.QueryPod, Pods: kubelet.QueryPodObject, CheckResponsive: c.dirs.Check})
	if err != nil {
		if old != nil {
			c.dirs.Replace(old.cfg.Directories(c.opts.SpecDirs))
		}
		return err
	}
	now := &core{engine, cfg, hooks}
	c.core.Store(now)
	if old != nil {
		c.retire(old)
	}
	c.mu.Lock()
	c.status = ConfigStatus{Failures: c.status.Failures, Config: status.Config{
		File: cfg.File(), Text: cfg.Text(), Generation: c.status.Generation + 1, Since: time.Now().UTC()}}
	c.mu.Unlock()
	c.follow(now)
	return nil
}

// checkSameStore refuses a configuration that would lose the state of living containers.
func checkSameStore(present, cfg *config.Config) error {
	for _, key := range []struct{ name, present, changed string }{
		{"stateDir", present.StateDir, cfg.StateDir},
		{"sockets.staging", string(present.Sockets.Staging), string(cfg.Sockets.Staging)},
		{"sockets.directorySize", present.Sockets.DirectorySize, cfg.Sockets.DirectorySize},
	} {
		if key.changed != key.present {
			return fmt.Errorf("%s: %s: found %q, and living containers use %q; restart jackfield-nri to change it: %w",
				cfg.Position(key.name), key.name, key.changed, key.present, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// retire closes an earlier configuration when no request runs under it any more.
func (c *configuration) retire(old *core) {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := time.AfterFunc(retireAfter, func() {
		c.mu.Lock()
		i := slices.IndexFunc(c.retired, func(r retiredCore) bool { return r.core == old })
		if i >= 0 {
			c.retired = slices.Delete(c.retired, i, i+1)
		}
		c.mu.Unlock()
		if i >= 0 {
			c.closeEngine(old)
		}
	})
	c.retired = append(c.retired, retiredCore{old, timer})
	if len(c.retired) > maxRetired {
		first := c.retired[0]
		c.retired = slices.Delete(c.retired, 0, 1)
		first.timer.Stop() // it would hold the configuration in memory for the rest of its time
		go c.closeEngine(first.core)
	}
}

func (c *configuration) closeEngine(old *core) {
	if err := old.engine.Close(); err != nil {
		c.log.WithError(err).Warn("cannot close the watches of the earlier configuration")
	}
}

// close closes the configuration in force and the earlier ones.
func (c *configuration) close() error {
	c.mu.Lock()
	cores := []*core{c.core.Load()}
	for _, r := range c.retired {
		r.timer.Stop()
		cores = append(cores, r.core)
	}
	c.retired = nil
	c.mu.Unlock()
	var errs []error
	for _, one := range cores {
		if one != nil {
			errs = append(errs, one.engine.Close())
		}
	}
	return errors.Join(errs...)
}

// reload puts a changed configuration file into force, or reports why it cannot be used.
func (c *configuration) reload() {
	if c.handedOver.Load() {
		return
	}
	log := c.log.WithField("file", c.opts.ConfigFile)
	present := c.core.Load().cfg
	cfg, err := config.Load(c.opts.ConfigHost, c.opts.ConfigFile, config.Options{RequireOwner: true})
	if err == nil && reflect.DeepEqual(cfg, present) {
		// The file was touched, or is corrected.
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.status.LastError != nil {
			c.status.LastError, c.status.Error = nil, ""
			log.WithField("generation", c.status.Generation).Info("the configuration file is the configuration in force again")
		}
		return
	}
	if err == nil {
		err = c.apply(cfg)
	}
	if err != nil {
		c.reject(err)
		return
	}
	c.writeCopy(cfg)
	if now, before := cfg.Validate, present.Validate; (now.Devices || now.Mounts) != (before.Devices || before.Mounts) {
		log.Warn("validate is switched on or off when the plugin registers next: restart jackfield-nri")
	}
	log.WithField("generation", c.describe().Generation).Info("new configuration in force")
}

// reject records and logs why the configuration file is not in force. Before any file came into force, the
// copy of the last good one is in force.
func (c *configuration) reject(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := &c.status
	message := "new configuration rejected; keeping the current one"
	if c.opts.ConfigFault != nil && in.Generation == 1 {
		if reflect.DeepEqual(errors.Unwrap(in.LastError), err) {
			return // the watch reads the file once when it starts
		}
		message = "configuration rejected; keeping the last good one"
		err = fmt.Errorf("%w (in force is the last good configuration, a copy of which is %s)", err, c.opts.ConfigCopy)
	}
	in.LastError, in.Error, in.Failures = err, diag.ErrorText(err), in.Failures+1
	c.log.WithError(err).WithField("file", c.opts.ConfigFile).WithField("generation", in.Generation).Error(message)
}

// writeCopy writes a copy of a configuration file that came into force, for a start at which the file is faulty.
// If the copy's directory is unresponsive the copying goes on in the background.
func (c *configuration) writeCopy(cfg *config.Config) {
	if c.opts.ConfigCopy == "" {
		return
	}
	waitAtStart(func() {
		c.copying.Lock()
		defer c.copying.Unlock()
		if err := config.WriteCopy(c.host, c.opts.ConfigCopy, c.opts.ConfigFile, []byte(cfg.Text())); err != nil {
			c.log.WithError(err).Warn("cannot copy the configuration for a start at which the file is faulty")
		}
	})
}
