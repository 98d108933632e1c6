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
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
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

// configuration is the configuration in force and the earlier ones whose requests may still
// run. A change replaces the core as a whole.
type configuration struct {
	core       atomic.Pointer[core]
	handedOver atomic.Bool      // the runtime handed it over: the file does not count
	watch      *filewatch.Watch // nil where there is no file

	dirs  *dircheck.Checker               // which of its directories are unresponsive
	hooks atomic.Pointer[hooksd.Snapshot] // what was reported last of its hooks.d directories; nil for none

	changing sync.Mutex // one change at a time
	copying  sync.Mutex // one copy at a time

	mu      sync.Mutex
	status  ConfigStatus
	retired []*core // the oldest first
}

// core is what one configuration consists of.
type core struct {
	engine *engine.Engine
	cfg    *config.Config
	hooks  *hooksd.Registry
}

// ConfigStatus says which configuration is in force.
type ConfigStatus struct {
	status.Config
	// LastError is why the newest file is not in force, nil when it is. Failures is how often
	// that happened.
	LastError error
	Failures  uint64
}

// ConfigStatus returns which configuration is in force, and why a newer one is not.
func (p *Plugin) ConfigStatus() ConfigStatus {
	p.config.mu.Lock()
	defer p.config.mu.Unlock()
	return p.config.status
}

// applyRuntimeConfig puts the configuration that the runtime handed over into force.
func (p *Plugin) applyRuntimeConfig(data []byte) error {
	cfg, err := config.Parse(data, "the runtime's plugin configuration")
	if err != nil {
		return err
	}
	if err := p.applyConfig(cfg); err != nil {
		return err
	}
	p.config.handedOver.Store(true)
	return nil
}

// applyConfig puts a configuration into force.
func (p *Plugin) applyConfig(cfg *config.Config) error {
	p.config.changing.Lock()
	defer p.config.changing.Unlock()
	old := p.config.core.Load()
	if old != nil {
		if err := checkSameStore(old.cfg, cfg); err != nil {
			return err
		}
	}
	p.config.dirs.Replace(cfg.Directories(p.opts.SpecDirs))
	if old == nil {
		if err := p.openStateDir(cfg); err != nil {
			return err
		}
	}
	hooks := hooksd.New(p.opts.Host, cfg.Hooks.Dirs, hooksd.Options{})
	engine, err := engine.New(p.opts.Host, cfg, engine.Options{SpecDirs: p.opts.SpecDirs, Ledger: &p.containers.ledger, Hooks: hooks.Hooks,
		FindSocketDir: staging.SocketDirFinder(p.opts.Host, cfg.StateDir, ""),
		Staged:        p.state.isStaged, Kubelet: kubelet.QueryPod, CheckResponsive: p.config.dirs.Check, ConfigName: p.opts.ConfigName})
	if err != nil {
		if old != nil {
			p.config.dirs.Replace(old.cfg.Directories(p.opts.SpecDirs))
		}
		return err
	}
	now := &core{engine, cfg, hooks}
	p.config.core.Store(now)
	p.containers.hotplug.followConfig(cfg)
	p.ports.followConfig(cfg)
	if old != nil {
		p.retireCore(old)
	}
	p.config.recordInForce(cfg)
	p.watchHooks(now)
	p.servers.applyConfig(cfg)
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

// recordInForce records that a configuration came into force.
func (c *configuration) recordInForce(cfg *config.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := status.Config{File: cfg.File(), Text: cfg.Text(), Generation: c.status.Generation + 1, Since: time.Now().UTC()}
	c.status = ConfigStatus{Config: now, Failures: c.status.Failures}
}

// retireCore has an earlier configuration closed when no request runs under it any more.
func (p *Plugin) retireCore(old *core) {
	c := &p.config
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = append(c.retired, old)
	if len(c.retired) > maxRetired {
		first := c.retired[0]
		c.retired = slices.Delete(c.retired, 0, 1)
		go p.closeCore(first)
	}
	time.AfterFunc(retireAfter, func() {
		if c.takeRetired(old) {
			p.closeCore(old)
		}
	})
}

// takeRetired removes an earlier configuration from the list. It returns false if another call did.
func (c *configuration) takeRetired(old *core) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.retired, old)
	if i >= 0 {
		c.retired = slices.Delete(c.retired, i, i+1)
	}
	return i >= 0
}

func (p *Plugin) closeCore(old *core) {
	if err := old.engine.Close(); err != nil {
		p.log.WithError(err).Warn("cannot close the watches of the earlier configuration")
	}
}

// closeEngines closes the configuration in force and the earlier ones.
func (c *configuration) closeEngines() error {
	c.mu.Lock()
	cores := append(c.retired, c.core.Load())
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

// reloadConfig puts a changed configuration file into force, or reports why it cannot be.
func (p *Plugin) reloadConfig() {
	if p.config.handedOver.Load() {
		return
	}
	log := p.log.WithField("file", p.opts.ConfigFile)
	present := p.config.core.Load().cfg
	cfg, err := config.Load(p.opts.ConfigHost, p.opts.ConfigFile, config.Options{RequireOwner: true})
	if err == nil && reflect.DeepEqual(cfg, present) {
		// The file was touched, or is corrected.
		if before := p.config.clearFault(); before.LastError != nil {
			log.WithField("generation", before.Generation).Info("the configuration file is the configuration in force again")
		}
		return
	}
	if err == nil {
		err = p.applyConfig(cfg)
	}
	if err != nil {
		p.rejectConfig(err)
		return
	}
	p.copyConfig(cfg)
	if now, before := cfg.Validate, present.Validate; (now.Devices || now.Mounts) != (before.Devices || before.Mounts) {
		log.Warn("validate is switched on or off when the plugin registers next: restart jackfield-nri")
	}
	log.WithField("generation", p.ConfigStatus().Generation).Info("new configuration in force")
}

// clearFault returns the status before the file was the configuration in force again.
func (c *configuration) clearFault() ConfigStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.status
	c.status.LastError, c.status.Error = nil, ""
	return before
}

// rejectConfig records and logs why the configuration file is not in force. Before any file
// came into force, the copy of the last good one is.
func (p *Plugin) rejectConfig(err error) {
	p.config.mu.Lock()
	defer p.config.mu.Unlock()
	in := &p.config.status
	message := "new configuration rejected; keeping the current one"
	if p.opts.ConfigFault != nil && in.Generation == 1 {
		if reflect.DeepEqual(errors.Unwrap(in.LastError), err) {
			return // the watch's first reading of the file
		}
		message = "configuration rejected; keeping the last good one"
		err = fmt.Errorf("%w (in force is the last good configuration, a copy of which is %s)", err, p.opts.ConfigCopy)
	}
	in.LastError, in.Error, in.Failures = err, diag.ErrorText(err), in.Failures+1
	p.log.WithError(err).WithField("file", p.opts.ConfigFile).WithField("generation", in.Generation).Error(message)
}

// copyConfig keeps a copy of a configuration file that came into force, for a start at which
// the file is faulty. While the copy's directory is unresponsive the copying goes on.
func (p *Plugin) copyConfig(cfg *config.Config) {
	if p.opts.ConfigCopy == "" {
		return
	}
	waitAtStart(func() {
		p.config.copying.Lock()
		defer p.config.copying.Unlock()
		if err := config.WriteCopy(p.opts.Host, p.opts.ConfigCopy, p.opts.ConfigFile, []byte(cfg.Text())); err != nil {
			p.log.WithError(err).Warn("cannot copy the configuration for a start at which the file is faulty")
		}
	})
}

// configReadTimeout is how long the start waits for the configuration file.
const configReadTimeout = 3 * time.Second

// loadConfig reads the configuration and compiles its rules. While a file cannot be used, the copy
// of the last good one is in force. A file that does not exist grants nothing any more: its copy
// is removed.
func loadConfig(opts *Options, file string, log *logrus.Logger) error {
	var err error
	if opts.ConfigHost, opts.ConfigFile, err = config.Locate(opts.Host, file); err != nil {
		return err
	}
	opts.Config, err = readWithin(opts.ConfigFile, func() (*config.Config, error) {
		return compileConfig(config.Load(opts.ConfigHost, opts.ConfigFile, config.Options{RequireOwner: true}))
	})
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err):
		if opts.ConfigCopy != "" {
			_, rerr := readWithin(opts.ConfigCopy, func() (struct{}, error) { return struct{}{}, config.RemoveCopy(opts.Host, opts.ConfigCopy) })
			if rerr != nil {
				log.WithError(rerr).Warn("cannot remove the copy of a configuration file that is gone")
			}
		}
		if file != "" {
			return err
		}
		opts.Config = config.Default()
		return nil
	case opts.ConfigCopy == "":
		return err
	}
	kept, kerr := readWithin(opts.ConfigCopy, func() (*config.Config, error) {
		return compileConfig(config.LoadCopy(opts.Host, opts.ConfigCopy, opts.ConfigFile))
	})
	if kerr != nil {
		if !errdefs.IsNotFound(kerr) {
			log.WithError(kerr).Warn("the copy of the last good configuration cannot be used either")
		}
		return err
	}
	opts.Config, opts.ConfigFault = kept, err
	return nil
}

// compileConfig compiles the rules of a configuration that was loaded.
func compileConfig(cfg *config.Config, err error) (*config.Config, error) {
	if err == nil {
		_, err = cfg.CompilePolicy("")
	}
	return cfg, err
}

// readWithin reads a file that may be on a file system that hangs. That is an error, and systemd
// or the kubelet starts the plugin again.
func readWithin[T any](file string, read func() (T, error)) (T, error) {
	value, err := deadline.Run(nil, configReadTimeout, read)
	if errors.Is(err, deadline.ErrTimeout) {
		err = errdefs.ErrUnavailable.WithMessage(fmt.Sprintf("read configuration %q: no answer within %v; check the file system mounted there", file, configReadTimeout))
	}
	return value, err
}

// hooksCheckInterval is how often hooks.d directories are checked while no container is
// created.
const hooksCheckInterval = 2 * time.Second

// watchHooks reports on the hooks.d directories of a configuration until it is out of force. It returns
// after the first report, unless the directories are unresponsive.
func (p *Plugin) watchHooks(c *core) {
	if len(c.cfg.Hooks.Dirs) == 0 {
		p.config.hooks.Store(nil)
		return
	}
	reported := make(chan struct{})
	go func() {
		p.reportHooks(c.hooks.Snapshot())
		close(reported)
		for {
			deadline.Sleep(p.closing, hooksCheckInterval)
			s := c.hooks.Snapshot()
			if p.closing.Err() != nil || p.config.core.Load() != c {
				return
			}
			p.reportHooks(s)
		}
	}()
	waitAtStart(func() { <-reported })
}

// reportHooks logs what is wrong in hooks.d directories, each problem once for as long as it
// lasts, and how many hooks are in force.
func (p *Plugin) reportHooks(s *hooksd.Snapshot) {
	last := p.config.hooks.Swap(s)
	if reflect.DeepEqual(s, last) {
		return
	}
	reported := make(map[string]bool)
	if last != nil {
		for _, problem := range last.Problems {
			reported[problem.Error()] = true
		}
	}
	changed := len(reported) != len(s.Problems) || len(s.Problems) == 0
	for _, problem := range s.Problems {
		text := problem.Error()
		if reported[text] {
			continue
		}
		changed = true
		log := p.log.WithField("file", problem.File)
		if problem.IsWarning() {
			plain := *problem
			plain.Severity = "" // the log line has a level
			log.Warn("hooks.d: " + plain.Error())
		} else {
			log.Error("hooks.d: this file or directory is not used: " + text)
		}
	}
	if changed {
		usable, _ := countHooks(s)
		p.log.WithField("hooks", usable).WithField("problems", len(s.Problems)).Info("hooks.d directories read")
	}
}

// countHooks counts the hooks that can be used, and the files and directories that cannot.
func countHooks(s *hooksd.Snapshot) (usable, inError uint64) {
	if s == nil {
		return 0, 0
	}
	for _, h := range s.Hooks {
		if h.Err == nil {
			usable++
		}
	}
	files := make(map[string]bool)
	for _, problem := range s.Problems {
		if !problem.IsWarning() {
			files[problem.File] = true
		}
	}
	return usable, uint64(len(files))
}
