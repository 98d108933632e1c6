// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

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
	// Once is for a process that resolves one request and ends: nothing is
	// watched.
	Once bool
	// TrustAnyone reads CDI files whoever may write them: for looking at a tree
	// that is not in use.
	TrustAnyone bool
	// Staged has sockets bound in the staging directory (staging.Mounts), instead of
	// having the runtime bind their directories. It is asked once, for the first
	// container that this makes a difference to; nil stands for no.
	Staged func() bool
	// Owner is that of the store that delivers sockets; see staging.Options.
	Owner string
	// SpecDirs, when not nil, take the place of the configuration's.
	SpecDirs []string
	// Kubelet makes the client that asks the kubelet behind a socket; podresources has
	// one. Without it, and with the socket, nobody says whose a device is.
	Kubelet func(host hostfs.Root, socket string) (Kubelet, error)
	// Ledger remembers what pods have, for limits of pods; nil where one container
	// is all that is seen.
	Ledger *Ledger
	// Answers is asked before a directory is looked into that may be on a file system
	// that hangs: an error is why it is not to be waited for. nil stands for none.
	Answers func(dir string) error
	// Patience bounds what New waits for directories; 0 stands for a second. One that
	// does not answer by then is for those requests to meet that need it.
	Patience time.Duration
	// HooksDirs reads the configuration's hooks.d directories; pkg/hooksd has one. It is
	// for a door whose runtime does not read such itself.
	HooksDirs func(host hostfs.Root, dirs []string) HooksDirs
	// ForAdministrator has notes say more, and errors name devices of the node also where the policy
	// would refuse them. What ends in a pod's events must not.
	ForAdministrator bool
	// ConfigName is what messages call the configuration; "" stands for its file.
	ConfigName string
}

// Kubelet is asked whose devices are.
type Kubelet interface {
	attachment.Kubelet
	Close() error
}

// HooksDirs are hooks.d directories.
type HooksDirs interface {
	// Hooks are what the directories hold now, in the order in which they are injected.
	Hooks() []*ocihook.Hook
	Close() error
}

// Engine resolves requests over one host with one configuration. It is safe for
// concurrent use.
type Engine struct {
	host             hostfs.Root
	cfg              *config.Config
	source           string // the configuration's name in messages
	owner            string
	policy           *policy.Policy
	ledger           *Ledger
	registry         *cdiregistry.Registry
	specDirs         []string // of registry
	answers          func(dir string) error
	attachments      *attachment.Finder
	kubelet          Kubelet   // nil for none
	hooks            HooksDirs // nil for none
	roots            []*socketRoot
	varRunIsRun      func() bool // on this host; looked at once
	staged           func() bool
	forAdministrator bool
	memories         sync.Pool // of *memory
}

// New makes an engine. Its errors are those of the configuration (the policy's
// rules) and of the watches it needs.
func New(host hostfs.Root, cfg *config.Config, opts Options) (*Engine, error) {
	e := &Engine{host: host, cfg: cfg, source: cmp.Or(opts.ConfigName, cfg.File(), config.DefaultPath), owner: opts.Owner, ledger: opts.Ledger, forAdministrator: opts.ForAdministrator, staged: func() bool { return false }, answers: opts.Answers}
	if opts.Staged != nil {
		e.staged = sync.OnceValue(opts.Staged)
	}
	if e.answers == nil {
		e.answers = func(string) error { return nil }
	}
	if opts.Patience <= 0 {
		opts.Patience = aheadTime
	}
	var err error
	if e.policy, err = policyOf(cfg, e.source, opts); err != nil {
		return nil, err
	}
	dirs := cfg.CDI.SpecDirs
	if opts.SpecDirs != nil {
		dirs = opts.SpecDirs
	}
	trust := cdiregistry.TrustOwner
	if opts.TrustAnyone {
		trust = cdiregistry.TrustAnyone
	}
	e.specDirs = dirs
	e.registry, err = cdiregistry.New(host, dirs, cdiregistry.Options{Extensions: cfg.CDI.Extensions, Trust: trust, DisableWatch: opts.Once})
	if err != nil {
		return nil, err
	}
	find := attachment.Options{
		CNIDir: cfg.DeviceInfo.CNIDir, DPDir: cfg.DeviceInfo.DPDir, MultusDir: cfg.Multus.CacheDir, Once: opts.Once,
		PodResourcesSocket: cfg.Kubelet.PodResourcesSocket, KubeletRequired: cfg.Kubelet.Required,
		OwnSocketTerms: func(network, resource string) bool {
			return cfg.Dialect(network, resource) != (config.Dialect{Use: config.Specification})
		},
	}
	if opts.Kubelet != nil && find.PodResourcesSocket != "" {
		if e.kubelet, err = opts.Kubelet(host, find.PodResourcesSocket); err != nil {
			return nil, errors.Join(err, e.registry.Close())
		}
		find.Kubelet = e.kubelet
	}
	if e.attachments, err = attachment.New(host, find); err != nil {
		return nil, errors.Join(err, e.closeKubelet(), e.registry.Close())
	}
	e.roots = newSocketRoots(cfg.Sockets.Roots)
	e.varRunIsRun = sync.OnceValue(func() bool { return varRunIsRun(host) })
	e.readAhead(opts)
	if opts.HooksDirs != nil && len(cfg.Hooks.Dirs) > 0 {
		e.hooks = opts.HooksDirs(host, cfg.Hooks.Dirs)
	}
	return e, nil
}

// Close frees what the engine watches.
func (e *Engine) Close() error {
	err := errors.Join(e.attachments.Close(), e.closeKubelet(), e.registry.Close())
	if e.hooks != nil {
		err = errors.Join(err, e.hooks.Close())
	}
	return err
}

func (e *Engine) closeKubelet() error {
	if e.kubelet == nil {
		return nil
	}
	return e.kubelet.Close()
}

// Registry is the engine's CDI registry, for commands that show it.
func (e *Engine) Registry() *cdiregistry.Registry { return e.registry }

// Policy is the policy that the engine resolves under.
func (e *Engine) Policy() *policy.Policy { return e.policy }

// Policy compiles the configuration's policy, for commands that ask it without an
// engine.
func Policy(cfg *config.Config) (*policy.Policy, error) {
	source := cfg.File()
	if source == "" {
		source = config.DefaultPath
	}
	return policyOf(cfg, source, Options{})
}

func policyOf(cfg *config.Config, source string, opts Options) (*policy.Policy, error) {
	if opts.AllowAll {
		return policy.AllowAll(), nil
	}
	rules := make([]policy.Rule, len(cfg.Policy.Rules))
	for i, r := range cfg.Policy.Rules {
		rules[i] = policy.Rule{
			Name: r.Name, For: policy.Subjects(r.For), Mode: policy.Mode(r.Mode), Allow: allowOf(r.Allow), Deny: allowOf(r.Deny),
			Limits: policy.Limits{Container: policy.Limit(r.Limits.Container), Pod: policy.Limit(r.Limits.Pod)},
		}
	}
	p, err := policy.New(source, policy.Mode(cfg.Policy.Mode), rules)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return p, err
	}
	var all []error
	for _, err := range joined.Unwrap() {
		var fault *policy.RuleError
		if errors.As(err, &fault) {
			err = fmt.Errorf("%s: %w", cfg.Position(fault.Field), err)
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

func allowOf(a config.Allow) policy.Allow {
	out := policy.Allow{CDI: a.CDI, Sockets: a.Sockets, Devices: a.Devices, Hooks: a.Hooks, Networks: a.Networks}
	for _, m := range a.Mounts {
		out.Mounts = append(out.Mounts, policy.Mount(m))
	}
	return out
}

// aheadTime is how long New waits for directories, unless Options say.
const aheadTime = time.Second

// readAhead resolves the socket roots and reads the specifications, for which the
// first container does not pay then.
func (e *Engine) readAhead(opts Options) {
	if opts.Once {
		return // there is one container, which pays for what it needs
	}
	e.varRunIsRun()
	var work sync.WaitGroup
	for _, r := range e.roots {
		work.Go(func() { _, _ = r.resolve(e.host) })
	}
	work.Go(func() { e.registry.Snapshot() })
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	timer := time.NewTimer(opts.Patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// answering is nil, or why directories are not to be waited for.
func (e *Engine) answering(dirs ...string) error {
	for _, dir := range dirs {
		if err := e.answers(dir); err != nil {
			return err
		}
	}
	return nil
}
