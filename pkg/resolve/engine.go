// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hooksd/ocihook"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/policy"
)

// Options change how an Engine works. The zero value is what a node wants.
type Options struct {
	// AllowAll puts no policy in force: for what the administrator asks for in
	// person, on a command line.
	AllowAll bool
	// Once is for a process that resolves one request and exits. Nothing is watched.
	Once bool
	// TrustAnyone also reads CDI files that other users can write, for a tree that is not in
	// use.
	TrustAnyone bool
	// Staged has sockets bound in the staging directory (staging.ModeMount), instead of
	// having the runtime bind their directories. It is asked wherever this makes a
	// difference; nil stands for no.
	Staged func() bool
	// Owner is that of the store that delivers sockets; see staging.Options.
	Owner string
	// SpecDirs, when not nil, take the place of the configuration's.
	SpecDirs []string
	// Kubelet creates the client for the kubelet's socket; podresources has one. Without it the
	// kubelet's allocations are unknown.
	Kubelet func(host hostfs.Root, socket string) Kubelet
	// Ledger remembers what pods have, for limits of pods; nil where one container
	// is all that is seen.
	Ledger *Ledger
	// CheckResponsive is called before a directory is read that may be on a file system that hangs. An
	// error says why it is not read. nil checks nothing.
	CheckResponsive func(dir string) error
	// Patience bounds what New waits for directories; 0 stands for a second. One that
	// does not answer by then is for those requests to meet that need it.
	Patience time.Duration
	// HooksDirs reads the configuration's hooks.d directories; pkg/hooksd has one. It is
	// for a runtime that does not read them itself.
	HooksDirs func(host hostfs.Root, dirs []string) HooksDirs
	// ForAdministrator has notes say more, and errors name devices of the node also where the policy
	// would refuse them. What ends in a pod's events must not.
	ForAdministrator bool
	// ConfigName is what messages call the configuration; "" stands for its file.
	ConfigName string
}

// Kubelet is asked whose devices are.
type Kubelet = attachment.Kubelet

// HooksDirs are hooks.d directories.
type HooksDirs interface {
	// Hooks are what the directories hold now, in the order in which they are injected.
	Hooks() []*ocihook.Hook
}

// Engine resolves requests over one host with one configuration. It is safe for
// concurrent use.
type Engine struct {
	host        hostfs.Root
	cfg         *config.Config
	opts        Options // with values for those that were left out
	policy      *policy.Policy
	registry    *cdiregistry.Registry
	attachments *attachment.Finder
	hooks       HooksDirs // nil for none
	roots       []*socketRoot
	namedRoots  map[string]*socketRoot // the directories of named sockets, by name
	varRunIsRun func() bool            // on this host; checked once
}

// New makes an engine. Its errors are those of the configuration (the policy's
// rules) and of the watches it needs.
func New(host hostfs.Root, cfg *config.Config, opts Options) (*Engine, error) {
	opts.ConfigName = cmp.Or(opts.ConfigName, cfg.File(), config.DefaultPath)
	if opts.Staged == nil {
		opts.Staged = func() bool { return false }
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
	e.registry, err = cdiregistry.New(host, opts.SpecDirs, cdiregistry.Options{Extensions: cfg.CDI.Extensions, TrustAnyone: opts.TrustAnyone, DisableWatch: opts.Once})
	if err != nil {
		return nil, err
	}
	find := attachment.Options{
		CNIDir: cfg.DeviceInfo.CNIDir, DPDir: cfg.DeviceInfo.DPDir, MultusDir: cfg.Multus.CacheDir, PluginsDir: cfg.Kubelet.PluginsDir, Once: opts.Once,
		PodResourcesSocket: cfg.Kubelet.PodResourcesSocket, KubeletRequired: cfg.Kubelet.Required,
		OwnSocketTerms: func(network, resource string) bool {
			return cfg.Dialect(network, resource, "") != (config.Dialect{Use: config.Specification})
		},
	}
	if opts.Kubelet != nil && find.PodResourcesSocket != "" {
		find.Kubelet = opts.Kubelet(host, find.PodResourcesSocket)
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
	e.varRunIsRun = sync.OnceValue(func() bool { return varRunIsRun(host) })
	e.readAhead()
	if opts.HooksDirs != nil && len(cfg.Hooks.Dirs) > 0 {
		e.hooks = opts.HooksDirs(host, cfg.Hooks.Dirs)
	}
	return e, nil
}

// Close frees what the engine watches.
func (e *Engine) Close() error {
	return errors.Join(e.attachments.Close(), e.registry.Close())
}

// Registry is the engine's CDI registry, for commands that show it.
func (e *Engine) Registry() *cdiregistry.Registry { return e.registry }

// Policy is the policy that the engine resolves under.
func (e *Engine) Policy() *policy.Policy { return e.policy }

// aheadTime is how long New waits for directories, unless Options say.
const aheadTime = time.Second

// readAhead resolves the socket roots and reads the specifications, for which the
// first container does not pay then.
func (e *Engine) readAhead() {
	if e.opts.Once {
		return // there is one container, which pays for what it needs
	}
	e.varRunIsRun()
	var work sync.WaitGroup
	for _, r := range slices.Concat(e.roots, slices.Collect(maps.Values(e.namedRoots))) {
		work.Go(func() { _, _ = r.resolve(e.host) })
	}
	work.Go(func() { e.registry.Snapshot() })
	_ = deadline.Within(cmp.Or(e.opts.Patience, aheadTime), func() error { work.Wait(); return nil })
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
