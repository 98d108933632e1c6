// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/internal/source/hooksd/ocihook"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Options change how an Engine works. The zero value is what a node wants.
type Options struct {
	// AllowAll grants everything, for commands that the administrator runs.
	AllowAll bool
	// Once is for a process that resolves one request and exits: it watches nothing.
	Once bool
	// Staged reports whether sockets are bound in the staging directory (staging.ModeMount). Otherwise
	// the runtime binds their directories. nil means that they are not.
	Staged func() bool
	// FindSocketDir returns the relation of a sandbox to the directory at a path below a canonical socket root;
	// staging.SocketDirFinder returns such a function. nil means that every directory is foreign.
	FindSocketDir func(sandboxID, root, rel string) (edit.DirState, error)
	// SpecDirs, where not nil, replaces the configuration's directories.
	SpecDirs []string
	// Kubelet asks the kubelet; kubelet.QueryPod is one. Without it the kubelet's allocations are
	// unknown.
	Kubelet Kubelet
	// Ledger records what pods have, for limits of pods. It is nil for a process that sees only one
	// container.
	Ledger *Ledger
	// CheckResponsive is called before a directory is read whose file system can hang. On an error
	// the directory is not read. nil checks nothing.
	CheckResponsive func(dir string) error
	// Hooks returns the hooks that the configuration's hooks.d directories hold now, in the order of their
	// injection, for a runtime that does not read them itself; internal/source/hooksd has such a function.
	Hooks func() []*ocihook.Hook
	// ForAdministrator adds details to notes, and lets errors name devices of the node that the policy
	// would refuse. Messages that end in a pod's events must not have them.
	ForAdministrator bool
	// ConfigName is the configuration's name in messages; "" means its file.
	ConfigName string
}

// Kubelet says which container has which device.
type Kubelet = attachment.Kubelet

// Engine resolves requests over one host with one configuration. It is safe for
// concurrent use.
type Engine struct {
	host        hostfs.Root
	cfg         *config.Config
	opts        Options // with values for those that were left out
	policy      *policy.Policy
	registry    *cdi.Cache
	attachments *attachment.Finder
	hooks       func() []*ocihook.Hook // see Options.Hooks; nil for no directories
	roots       []*socketRoot
	namedRoots  map[string]*socketRoot // the directories of named sockets, by name
	varRunIsRun func() bool            // whether the host's /var/run is /run; checked once
}

// New returns an engine. It fails when the policy's rules are invalid or a directory cannot be
// watched.
func New(host hostfs.Root, cfg *config.Config, opts Options) (*Engine, error) {
	opts.ConfigName = cmp.Or(opts.ConfigName, cfg.File(), config.DefaultPath)
	if opts.Staged == nil {
		opts.Staged = func() bool { return false }
	}
	if opts.FindSocketDir == nil {
		opts.FindSocketDir = func(string, string, string) (edit.DirState, error) { return edit.ForeignDir, nil }
	}
	if opts.CheckResponsive == nil {
		opts.CheckResponsive = func(string) error { return nil }
	}
	if opts.SpecDirs == nil {
		opts.SpecDirs = cfg.CDI.SpecDirs
	}
	e := &Engine{host: host, cfg: cfg, opts: opts}
	var err error
	if opts.AllowAll {
		e.policy = policy.AllowAll()
	} else if e.policy, err = cfg.CompilePolicy(opts.ConfigName); err != nil {
		return nil, err
	}
	e.registry, err = cdi.NewCache(cdi.Options{Root: host.Dir(), SpecDirs: opts.SpecDirs, Extensions: cfg.CDI.Extensions, DisableWatch: opts.Once})
	if err != nil {
		return nil, err
	}
	find := attachment.Options{
		CNIDir: cfg.DeviceInfo.CNIDir, DPDir: cfg.DeviceInfo.DPDir, MultusDir: cfg.Multus.CacheDir, PluginsDir: cfg.Kubelet.PluginsDir, Once: opts.Once,
		PodResourcesSocket: cfg.Kubelet.PodResourcesSocket, KubeletRequired: cfg.Kubelet.Required, Kubelet: opts.Kubelet,
		OwnSocketTerms: func(network, resource string) bool {
			return cfg.Dialect(network, resource, "") != (config.Dialect{Use: config.Specification})
		},
	}
	if e.attachments, err = attachment.New(host, find); err != nil {
		return nil, errors.Join(err, e.registry.Close())
	}
	for _, name := range cfg.Sockets.Roots {
		e.roots = append(e.roots, &socketRoot{name: name})
	}
	e.namedRoots = make(map[string]*socketRoot)
	for name, s := range cfg.Sockets.Named {
		e.namedRoots[name] = &socketRoot{name: path.Dir(s.Path)}
	}
	e.varRunIsRun = sync.OnceValue(func() bool {
		real, err := host.Resolve("/var/run")
		return err == nil && real == "/run"
	})
	e.prefetch()
	if len(cfg.Hooks.Dirs) > 0 {
		e.hooks = opts.Hooks
	}
	return e, nil
}

// Close frees what the engine watches.
func (e *Engine) Close() error {
	return errors.Join(e.attachments.Close(), e.registry.Close())
}

// Registry returns the engine's CDI registry, for commands that show it.
func (e *Engine) Registry() *cdi.Cache { return e.registry }

// Policy returns the policy that grants requests.
func (e *Engine) Policy() *policy.Policy { return e.policy }

// prefetchTimeout is how long New waits for directories. Requests that need a slower one fail later.
const prefetchTimeout = 500 * time.Millisecond

// prefetch resolves the socket roots and reads the CDI files, so that the first container does not
// wait for them.
func (e *Engine) prefetch() {
	if e.opts.Once {
		return // there is one container, which pays for what it needs
	}
	e.varRunIsRun()
	var work sync.WaitGroup
	for _, r := range slices.Concat(e.roots, slices.Collect(maps.Values(e.namedRoots))) {
		work.Go(func() { _, _ = r.resolve(e.host) })
	}
	work.Go(func() { e.registry.Snapshot() })
	_ = deadline.Within(prefetchTimeout, func() error { work.Wait(); return nil })
}

// checkDirs returns why one of the directories does not respond, or nil.
func (e *Engine) checkDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := e.opts.CheckResponsive(dir); err != nil {
			return err
		}
	}
	return nil
}
