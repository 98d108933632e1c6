// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
)

// Options of a Runtime. The zero value is a containerd 2.1.9 with a socket in a
// directory of its own.
type Options struct {
	// RuntimeName and RuntimeVersion are what the runtime reports of itself;
	// empty: "containerd" and "2.1.9".
	RuntimeName, RuntimeVersion string
	// SocketPath is where plugins connect. Empty: nri.sock in a new directory
	// below os.TempDir, which Close removes.
	SocketPath string
	// PluginPath and ConfigPath are the directories of pre-installed plugins
	// and of their NN-name.conf files. Empty: none.
	PluginPath, ConfigPath string
	// RequestTimeout and RegistrationTimeout bound a request and a registration; 0: NRI's
	// defaults, 2 s and 5 s.
	RequestTimeout, RegistrationTimeout time.Duration
	// Patience is how long the runtime really waits for a request before it drops the
	// plugin, if longer than the RequestTimeout that the plugin sees as its deadline. So
	// a plugin on a busy machine is not dropped for an answer that was in time. It
	// applies to the whole process.
	Patience time.Duration
	// InjectCDI is called for the CDI device names that plugins have the runtime inject.
	// nil drops them silently, as runtimes without an injector do.
	InjectCDI func(*rspec.Spec, []string) error
	// Validator is the configuration of NRI's default validator; nil: none.
	Validator *validator.DefaultValidatorConfig
}

// Runtime is the runtime's side of NRI. Its methods may be called from several
// goroutines.
type Runtime struct {
	opts   Options
	tmp    string // removed by Close
	events *events

	mu      sync.Mutex
	adapt   *adaptation.Adaptation // nil when stopped
	pods    map[string]*api.PodSandbox
	ctrs    map[string]*api.Container
	updates []*api.ContainerUpdate
}

// Start returns a runtime that listens. The caller closes it.
func Start(opts Options) (*Runtime, error) {
	if opts.RuntimeName == "" {
		opts.RuntimeName = "containerd"
	}
	if opts.RuntimeVersion == "" {
		opts.RuntimeVersion = "2.1.9"
	}
	if opts.RequestTimeout == 0 {
		opts.RequestTimeout = adaptation.DefaultPluginRequestTimeout
	}
	if opts.RegistrationTimeout == 0 {
		opts.RegistrationTimeout = adaptation.DefaultPluginRegistrationTimeout
	}
	opts.Patience = max(opts.Patience, opts.RequestTimeout)
	r := &Runtime{opts: opts, events: newEvents(),
		pods: map[string]*api.PodSandbox{}, ctrs: map[string]*api.Container{}}
	if opts.SocketPath == "" || opts.PluginPath == "" || opts.ConfigPath == "" {
		tmp, err := os.MkdirTemp("", "jfnri")
		if err != nil {
			return nil, fmt.Errorf("start NRI runtime: %w", err)
		}
		r.tmp = tmp
	}
	for field, name := range map[*string]string{
		&r.opts.SocketPath: "nri.sock", &r.opts.PluginPath: "plugins", &r.opts.ConfigPath: "conf.d"} {
		if *field == "" {
			*field = filepath.Join(r.tmp, name)
		}
	}
	if err := r.Resume(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// SocketPath returns where plugins connect.
func (r *Runtime) SocketPath() string { return r.opts.SocketPath }

// Suspend stops listening and disconnects every plugin, as a runtime that ends does. Pods and
// containers stay.
func (r *Runtime) Suspend() error {
	r.mu.Lock()
	a := r.adapt
	r.adapt = nil
	r.mu.Unlock()
	if a == nil {
		return nil
	}
	a.Stop()
	// Stop ends only what the adaptation itself started.
	err := hangUp(r.opts.SocketPath)
	r.events.reset()
	if rm := os.Remove(r.opts.SocketPath); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

// Resume listens again, after Suspend, on the same path.
func (r *Runtime) Resume() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.adapt != nil {
		return nil
	}
	quietLog()
	adaptation.SetPluginRequestTimeout(r.opts.Patience)
	adaptation.SetPluginRegistrationTimeout(r.opts.RegistrationTimeout)
	options := []adaptation.Option{
		adaptation.WithSocketPath(r.opts.SocketPath),
		adaptation.WithPluginPath(r.opts.PluginPath),
		adaptation.WithPluginConfigPath(r.opts.ConfigPath),
		adaptation.WithMetrics(r.events),
	}
	if r.opts.Validator != nil {
		options = append(options, adaptation.WithDefaultValidator(r.opts.Validator))
	}
	a, err := adaptation.New(r.opts.RuntimeName, r.opts.RuntimeVersion, r.synchronize, r.update, options...)
	if err != nil {
		return fmt.Errorf("start NRI runtime: %w", err)
	}
	r.mu.Unlock() // pre-installed plugins are synchronized inside Start
	err = a.Start()
	r.mu.Lock()
	if err != nil {
		a.Stop()
		return fmt.Errorf("start NRI runtime on %q: %w", r.opts.SocketPath, err)
	}
	r.adapt = a
	return nil
}

// Restart is Suspend and Resume: what plugins see of "systemctl restart".
func (r *Runtime) Restart() error {
	if err := r.Suspend(); err != nil {
		return err
	}
	return r.Resume()
}

// Close ends the runtime and removes what it created.
func (r *Runtime) Close() error {
	err := r.Suspend()
	if r.tmp != "" {
		err = errors.Join(err, os.RemoveAll(r.tmp))
	}
	return err
}

// WaitPlugin waits until a plugin, "10-jackfield" for example, is registered,
// configured and synchronized, so that the next request reaches it. A plugin that registered
// earlier counts, unless Gone was called for it.
func (r *Runtime) WaitPlugin(ctx context.Context, name string) error {
	return r.events.waitPlugin(ctx, name)
}

// Gone records that a plugin has ended, so that WaitPlugin waits for the next one of its name. The
// runtime itself notices at its next request.
func (r *Runtime) Gone(name string) { r.events.gone(name) }

// Plugins returns how many plugins are connected. A plugin that ended is counted until the next
// request.
func (r *Runtime) Plugins() int { return r.events.plugins() }

// AddPod adds a pod without reporting it. It is in the state with which the next plugin is
// synchronized.
func (r *Runtime) AddPod(pod *api.PodSandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[pod.GetId()] = proto.CloneOf(pod)
}

// AddContainer is AddPod for a container; its PodSandboxId names the pod.
func (r *Runtime) AddContainer(ctr *api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctrs[ctr.GetId()] = proto.CloneOf(ctr)
}

// Forget removes a pod with its containers, or a container, without reporting it, as if it had ended
// while no plugin was connected.
func (r *Runtime) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, id)
	delete(r.ctrs, id)
	for k, c := range r.ctrs {
		if c.GetPodSandboxId() == id {
			delete(r.ctrs, k)
		}
	}
}

// Updates returns the unsolicited container updates that plugins have sent.
func (r *Runtime) Updates() []*api.ContainerUpdate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.updates)
}

func (r *Runtime) synchronize(ctx context.Context, cb adaptation.SyncCB) error {
	r.mu.Lock()
	pods, ctrs := sorted(r.pods), sorted(r.ctrs)
	r.mu.Unlock()
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	updates, err := cb(ctx, pods, ctrs)
	if err != nil {
		return err
	}
	_, err = r.update(ctx, updates)
	return err
}

func (r *Runtime) update(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updates = append(r.updates, updates...)
	return nil, nil
}

// running returns the adaptation, or ErrUnavailable between Suspend and Resume.
func (r *Runtime) running() (*adaptation.Adaptation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.adapt == nil {
		return nil, fmt.Errorf("use NRI runtime: it is stopped: %w", errdefs.ErrUnavailable)
	}
	return r.adapt, nil
}

// sorted returns copies of the values in the order of the keys.
func sorted[M proto.Message](m map[string]M) []M {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	vals := make([]M, 0, len(m))
	for _, k := range keys {
		vals = append(vals, proto.CloneOf(m[k]))
	}
	return vals
}
