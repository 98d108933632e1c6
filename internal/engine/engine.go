// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/devices"
)

// Engine resolves requests over one host with one configuration. It is safe for
// concurrent use.
type Engine struct {
	host        hostfs.Root
	cfg         *config.Config
	opts        Options
	policy      *policy.Policy
	registry    *cdi.Cache
	attachments *attachment.Finder
	roots       *socketRoots
}

// New returns an engine. It fails when the policy's rules are invalid or a directory cannot be
// watched.
func New(host hostfs.Root, cfg *config.Config, opts Options) (*Engine, error) {
	opts.setDefaults(cfg)
	e := &Engine{host: host, cfg: cfg, opts: opts}
	var err error
	if opts.AllowAll {
		e.policy = policy.AllowAll()
	} else if e.policy, err = cfg.CompilePolicy(opts.ConfigName); err != nil {
		return nil, err
	}
	e.registry, err = cdi.NewCache(cdi.Options{Root: host.Dir(), SpecDirs: opts.SpecDirs,
		Extensions: cfg.CDI.Extensions, DisableWatch: opts.Once})
	if err != nil {
		return nil, err
	}
	e.attachments, err = attachment.New(host, attachment.Options{
		CNIDir: cfg.DeviceInfo.CNIDir, DPDir: cfg.DeviceInfo.DPDir, MultusDir: cfg.Multus.CacheDir,
		PluginsDir: cfg.Kubelet.PluginsDir, PodResourcesSocket: cfg.Kubelet.PodResourcesSocket,
		PodsSocket: cfg.Kubelet.PodsSocket, Pods: opts.Pods, CheckResponsive: opts.CheckResponsive,
		Kubelet: opts.Kubelet, KubeletRequired: cfg.Kubelet.Required, Once: opts.Once,
		OwnSocketTerms: func(network, resource string) bool {
			return cfg.Dialect(network, resource, "") != (config.Dialect{Use: config.Specification})
		},
	})
	if err != nil {
		return nil, errors.Join(err, e.registry.Close())
	}
	e.roots = newSocketRoots(host, cfg, &e.opts)
	e.prefetch()
	return e, nil
}

// Close frees the engine's watches.
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
		return // the only container reads the directories that it needs
	}
	_ = deadline.Within(prefetchTimeout, func() error {
		e.registry.Snapshot()
		e.roots.prefetch()
		return nil
	})
}

// Resolve returns the plan of a container. For a container that requests nothing, and for whose
// sandbox there is nothing on the node, it returns nil without an error.
//
// The error is an *Error with every request that failed. It unwraps to the sentinels of
// containerd/errdefs of all of them.
func (e *Engine) Resolve(ctx context.Context, req *Request) (*Plan, error) {
	p := newDraft(newInputs(ctx, e, req))
	if !e.resolve(p) {
		return nil, nil
	}
	return p.result()
}

// Explain is like Resolve, but reserves nothing in the Ledger, and returns the items even if it
// fails.
func (e *Engine) Explain(ctx context.Context, req *Request) (*Plan, error) {
	p := newDraft(newInputs(ctx, e, req))
	p.in.explain = true
	if !e.resolve(p) {
		return &Plan{Unchecked: p.unchecked}, nil
	}
	plan, err := p.result()
	if err != nil {
		plan = &Plan{Items: p.items, Unchecked: p.unchecked}
	}
	return plan, err
}

// resolve completes the draft of a container that is created. It returns false if nothing was requested or found.
func (e *Engine) resolve(p *draft) bool {
	in := p.in
	if !e.opts.ForAdministrator {
		in.created.Explanations = new(MaxExplanations)
	}
	annotated := e.isAnnotated(in.req.Annotations)
	requested := annotated || len(in.req.CDIDevices) > 0
	err := in.findAttachments(requested, e.MayRequest(in.req.Annotations), p.addUnchecked)
	if e.opts.Hooks != nil {
		in.hooks = matchingHooks(e.opts.Hooks(), in.req)
	}
	found := slices.ContainsFunc(in.attached, hasDevice) || len(in.allocated) > 0 || len(in.hooks) > 0
	if !requested && !found && err == nil {
		return false
	}
	if err == nil && annotated {
		err = in.parseAnnotations()
	}
	if err != nil {
		p.fail(err)
		return true
	}
	if e.opts.Once {
		in.cdi.names = in.cdiNames()
	}
	p.items = make([]Item, 0, 8) // most containers request a few things
	p.addFrom(addPassedDevices, addAnnotatedDevices, addInjectorRequests, addNetworks, addAllocatedDevices, addHooks)
	if len(p.errs) == 0 && (len(p.view) > 0 || in.expectsHotplug()) {
		p.fail(p.addView())
	}
	if len(p.errs) == 0 {
		p.fail(p.checkLimits(p.countUsage()))
	}
	return true
}

// ResolveRunning returns the present plan of a running container for its sandbox's networks: networks
// that were added since are in the plan, those that were removed are not. The request is the one of
// its creation; Have names everything that it has, including its mounts of the staging directory.
//
// The plan has Staging, Items and Unchecked only, and Staging is never nil: a running
// container gets neither variables nor mounts of its own nor device nodes. A request that cannot
// be delivered is skipped or unmanaged, and does not fail the others. The container keeps
// everything that it has, even if the present policy would deny it.
//
// Only a plan without Unchecked and without a skipped item shows which networks were removed.
// An error belongs to the request as a whole. A request that ran out of time is an error.
func (e *Engine) ResolveRunning(ctx context.Context, req *Request) (*Plan, error) {
	if err := e.opts.checkDirs(e.cfg.DeviceInfo.CNIDir, e.cfg.Multus.CacheDir); err != nil {
		return nil, &Error{Container: req.Name(), Errs: []error{err}}
	}
	in := newInputs(ctx, e, req)
	in.running = true
	p := newDraft(in)
	q := query(req)
	q.Unread = p.addUnchecked
	in.search = in.finder.Search(in.ctx, q)
	if err := in.runSearch(); err != nil {
		return nil, err
	}
	if _, err := e.host.Stat(e.cfg.DeviceInfo.CNIDir); err != nil && !e.hasOnlyClaims(req) {
		// Networks are removed from a pod file by file. A missing directory was unmounted or replaced.
		p.addUnchecked(fmt.Errorf("deviceInfo.cniDir: %w", err))
	}
	if err := in.parseAnnotations(); err != nil {
		return nil, err
	}
	p.addFrom(addAnnotatedDevices, addNetworks, addAllocatedDevices)
	if len(p.errs) == 0 {
		_, err := p.addViewFile()
		p.fail(err)
	}
	if len(p.errs) == 0 {
		// Everything but the sockets stays as it was at the container's creation.
		usage := e.opts.Ledger.usageOf(req.SandboxID, req.Container)
		usage.Sockets = p.countUsage().Sockets
		p.fail(p.checkLimits(usage))
	}
	return p.result()
}

// hasOnlyClaims reports whether a running container has devices of claims and nothing of a network.
func (e *Engine) hasOnlyClaims(req *Request) bool {
	var elements []devices.Device
	view, err := ReadView(e.host, e.cfg.StateDir, req.ContainerID)
	if err != nil || json.Unmarshal(view, &elements) != nil || len(elements) == 0 {
		return false
	}
	return !slices.ContainsFunc(elements, func(d devices.Device) bool {
		c := d.Jackfield.Claim
		return c == nil || !strings.HasPrefix(d.Name, cmp.Or(c.PodClaim, c.Name)+"/"+c.Request)
	})
}

// HasNoRequests reports that Resolve would return nothing for the container; false means that this
// is not certain. It is cheap and reads no file.
func (e *Engine) HasNoRequests(req *Request) bool {
	return e.opts.Hooks == nil && !e.isAnnotated(req.Annotations) && e.attachments.FindsNothing(query(req))
}

// isAnnotated reports whether any annotation is a request to this engine.
func (e *Engine) isAnnotated(annotations map[string]string) bool {
	return annotation.HasAny(annotations) || e.cfg.Compat.DeviceInjector && annotation.HasInjector(annotations)
}

// defaultNetwork is the annotation by which Multus gives a pod another network in
// place of the cluster's own.
const defaultNetwork = "v1.multus-cni.io/default-network"

// MayRequest reports whether a pod's annotations request anything, or name networks that
// a rule could grant. It reads no file: if none can be read, such a pod must not be created
// without its devices.
func (e *Engine) MayRequest(annotations map[string]string) bool {
	return e.isAnnotated(annotations) || annotations[attachment.NetworksAnnotation] != "" ||
		annotations[defaultNetwork] != ""
}

// MetadataFiles returns the host paths of the files in which drivers describe the container's claims,
// for a caller that watches them.
func (e *Engine) MetadataFiles(req *Request) []string {
	return e.attachments.MetadataFiles(query(req).MetadataFiles)
}
