// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/manifest"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
	"github.com/jackfield/jackfield/internal/source/hooksd"
	"github.com/jackfield/jackfield/internal/source/hooksd/ocihook"
	"github.com/jackfield/jackfield/internal/source/kubelet"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Explanation is the result of a creation of one container.
type Explanation struct {
	Container string  `json:"container"`
	Verdict   Verdict `json:"verdict"`
	// Created is null where not everything was checked.
	Created  *bool         `json:"created"`
	Error    string        `json:"error,omitempty"`
	Requests []engine.Item `json:"requests"`
	// NotChecked has the requests that could not be resolved, each with the missing information.
	NotChecked []engine.Item `json:"notChecked,omitempty"`
	// NotRead has the sources that exist and cannot be read. Without them the outcome of a request may be another.
	NotRead  []string `json:"notRead,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // about the pod's annotations and the node's hook files
	Edits    edit.Set `json:"edits"`
	// View is the container's devices.json; absent where it has no attachment.
	View json.RawMessage `json:"view,omitempty"`

	Missing  bool    `json:"-"` // the pod does not have the container, which an annotation names
	Problems []error `json:"-"` // of Error, without those of a request
}

// Verdict is the result of a container's creation.
type Verdict string

// The verdicts.
const (
	Created    Verdict = "created"
	Refused    Verdict = "refused"
	Incomplete Verdict = "incomplete" // nothing refuses it, but not everything was checked
)

// Options are the host and the objects to explain.
type Options struct {
	Host      hostfs.Root
	Config    *config.Config
	SpecDirs  string // the value of cdi.DirsEnv
	Manifests *manifest.Objects
	SandboxID string // of the pod; "" if it does not run on the host
	Container string // explain only this one; "" for all
	// IsPod is set in a pod, which does not see the host's files: references of CDI files are not checked.
	IsPod bool
}

// Explainer explains the containers of pods. The engine explains the requests of an adapter. A manifest
// says more, about networks, ports and resource claims: the explainer adds an item for each of these.
type Explainer struct {
	opts   Options
	engine *engine.Engine
	ledger *engine.Ledger // the usage of the containers of the pod, for limits of pods

	metadata []devicemetadata.File // of the host
	// MetadataError is why not all metadata was read, or nil.
	MetadataError error
	// RefusedHooks has the faults of the node's hook files that it refuses.
	RefusedHooks []string
	unreadHooks  []string // the faults of hooks.d directories that cannot be read
	// missing is the part that the engine lacks to ask the kubelet which of the metadata files are a container's;
	// "" if it has everything.
	missing string
}

// New creates an explainer. The caller closes it.
func New(opts Options) (*Explainer, error) {
	dirs, err := cdi.DirsFromEnv(opts.SpecDirs)
	if err != nil {
		return nil, err
	}
	// As the daemon of this host stages sockets, or last did; as directories where none ever ran.
	staged := sync.OnceValue(func() bool {
		status, _ := staging.ReadStatus(opts.Host, opts.Config.StateDir)
		return status.Mode == staging.ModeMount
	})
	ledger := new(engine.Ledger)
	hooks := hooksd.New(opts.Host, opts.Config.Hooks.Dirs, hooksd.Options{})
	engine, err := engine.New(opts.Host, opts.Config, engine.Options{
		Ledger: ledger, Once: true, Kubelet: kubelet.QueryPod, Pods: kubelet.QueryPodObject, Staged: staged,
		Hooks:         hooks.Hooks,
		Holders:       sync.OnceValue(func() []engine.Holder { return recordedHolders(opts) }),
		FindSocketDir: staging.SocketDirFinder(opts.Host, opts.Config.StateDir, ""),
		SpecDirs:      dirs, ForAdministrator: true,
	})
	if err != nil {
		return nil, err
	}
	x := &Explainer{opts: opts, engine: engine, ledger: ledger}
	x.checkHooks(hooks.Snapshot())
	x.readMetadata()
	return x, nil
}

// recordedHolders returns the holders of devices that jackfield-nri of this host has on record.
func recordedHolders(opts Options) (holders []engine.Holder) {
	for _, c := range status.ReadRecords(opts.Host, opts.Config.StateDir) {
		holders = append(holders, c.Holder())
	}
	return holders
}

// Close closes the engine.
func (x *Explainer) Close() { x.engine.Close() }

// ExplainPod explains the containers of a pod, and those that its annotations name and it does not have.
func (x *Explainer) ExplainPod(ctx context.Context, p *manifest.Pod) []Explanation {
	var all []Explanation
	x.ledger.Forget(x.opts.SandboxID) // the pod before it has the same, if neither runs
	for _, r := range p.Requests(x.opts.SandboxID, x.opts.Container) {
		var more []engine.Item
		if x.opts.SandboxID == "" {
			more = append(x.explainPorts(r), x.explainNetworks(r)...)
		}
		more = append(more, x.explainClaims(p, r)...)
		explained, usage := x.explainContainer(ctx, r, more)
		if usage != nil && !p.EndsBeforeOthers(r.Container) {
			x.ledger.RecordUsage(r.SandboxID, r.Container, r.ContainerID, *usage)
		}
		noteHugePages(&explained, r.Args, p.HugePages(r.Container))
		all = append(all, explained)
	}
	for _, m := range p.MissingContainers(x.opts.Config) {
		all = append(all, Explanation{Container: m.Name, Error: m.Problem, Missing: true,
			Problems: []error{errors.New(m.Problem)}, Requests: []engine.Item{}})
	}
	for i := range all {
		out := &all[i]
		out.Warnings = append(p.Warnings(x.opts.Config), x.RefusedHooks...)
		out.NotRead = append(out.NotRead, x.unreadHooks...)
		switch {
		case out.Error != "":
			out.Verdict, out.Created = Refused, new(false)
		case len(out.NotChecked)+len(out.NotRead) > 0:
			out.Verdict = Incomplete
		default:
			out.Verdict, out.Created = Created, new(true)
		}
	}
	return all
}

// checkHooks finds the hooks.d directories that cannot be read, and the hook files that the node refuses. The engine
// reports a hook whose program cannot be run.
func (x *Explainer) checkHooks(s *hooksd.Snapshot) {
	for _, fault := range s.Problems {
		switch {
		case slices.ContainsFunc(s.Hooks, func(h *ocihook.Hook) bool { return h.Err == error(fault) }):
		case errdefs.IsUnavailable(fault) || errdefs.IsResourceExhausted(fault):
			x.unreadHooks = append(x.unreadHooks, fault.Error())
		default:
			x.RefusedHooks = append(x.RefusedHooks, fault.Error()+"; its hook is not injected")
		}
	}
}

// explainContainer explains the edits that the engine would inject, and adds more items. If a rule limits the pod, it
// returns the container's usage.
func (x *Explainer) explainContainer(ctx context.Context, r *engine.Request, more []engine.Item) (Explanation,
	*policy.Usage) {
	can := capabilitiesOf(r)
	optimistic := asRootIfUnknown(can)
	r.CanDeliver = func(set *edit.Set, request string) error { return capability.Check(set, optimistic, request) }
	r.FromManifest = true
	plan, err := x.engine.Explain(ctx, r)
	failed := &engine.Error{Container: r.Name()}
	if !errors.As(err, &failed) {
		plan.DropGroups(can.UnneededGroup)
		failed.Errs = append(failUndeliverable(plan, can), x.failUnstartable(plan)...)
	}
	for i := range more {
		if more[i].FailsContainer() {
			failed.Errs = append(failed.Errs, more[i].Err)
		}
	}
	items := append(plan.Items, more...)
	out := Explanation{Container: r.Name(), Requests: []engine.Item{}}
	for _, err := range plan.Unchecked {
		if text := diag.ErrorText(err); !slices.Contains(out.NotRead, text) {
			out.NotRead = append(out.NotRead, text)
		}
	}
	if x.MetadataError != nil && slices.ContainsFunc(more,
		func(it engine.Item) bool { return it.Kind == engine.KindClaim }) {
		out.NotRead = append(out.NotRead, diag.ErrorText(x.MetadataError))
	}
	if len(failed.Errs) > 0 {
		out.Error, items = diag.ErrorText(failed), engine.WithheldItems(items)
		out.Problems = slices.DeleteFunc(slices.Clone(failed.Errs), func(err error) bool {
			return slices.ContainsFunc(items, func(it engine.Item) bool { return it.Err != nil && errors.Is(err, it.Err) })
		})
	} else {
		out.Edits = x.withHostPaths(plan.Set)
	}
	for _, it := range items {
		if it.Outcome == engine.NotChecked {
			out.NotChecked = append(out.NotChecked, it)
		} else {
			out.Requests = append(out.Requests, it)
		}
	}
	if plan.Staging != nil {
		for _, f := range plan.Staging.Files {
			if f.Name == engine.ViewFile {
				out.View = f.Data
			}
		}
	}
	return out, plan.Usage
}

// capabilitiesOf returns the capabilities of the newest NRI for a container. The doctor and the plugin report the
// limits of the node's own version.
func capabilitiesOf(r *engine.Request) capability.Capabilities {
	can := capability.Capabilities{DeviceRules: true, NetDevices: true, RDT: true, Validate: true, Rlimits: true}
	if r.User != nil {
		can.UID = &r.User.UID
	}
	return can
}

// asRootIfUnknown returns the capabilities for root where the image decides who the user is.
func asRootIfUnknown(can capability.Capabilities) capability.Capabilities {
	if can.UID == nil {
		can.UID = new(uint32)
	}
	return can
}

// failUndeliverable fails the items of a plan that the plugin cannot deliver, and returns their errors. An item that
// could be delivered to root is not checked while the image decides who the user is.
func failUndeliverable(plan *engine.Plan, can capability.Capabilities) (errs []error) {
	optimistic := asRootIfUnknown(can)
	for i := range plan.Items {
		it := &plan.Items[i]
		if it.Outcome != engine.Injected {
			continue
		}
		if err := capability.Check(&plan.Set, optimistic, it.Request); err != nil {
			it.SetOutcome(engine.Failed, err)
			errs = append(errs, err)
		} else if err := capability.Check(&plan.Set, can, it.Request); err != nil {
			it.SetOutcome(engine.NotChecked, fmt.Errorf("the image's user is unknown: set runAsUser in the pod's "+
				"securityContext; for a user other than root: %w", err))
		}
	}
	return errs
}

// failUnstartable fails the items of a plan with which the OCI runtime would not start the container, because a mount
// source or a hook's program is missing on the host, and returns their errors. A lesser fault is a note of its item.
func (x *Explainer) failUnstartable(plan *engine.Plan) (errs []error) {
	if x.opts.IsPod {
		return nil
	}
	for i := range plan.Items {
		it := &plan.Items[i]
		if it.Outcome != engine.Injected {
			continue
		}
		var fatal diag.List
		for _, d := range cdiedits.CheckHost(x.opts.Host, editsOf(&plan.Set, it.Request)) {
			if d.IsWarning() {
				it.Notes = append(it.Notes, d.Error())
				continue
			}
			fatal = append(fatal, d)
		}
		if len(fatal) > 0 {
			it.SetOutcome(engine.Failed, fmt.Errorf("the OCI runtime would not start the container: %w", fatal))
			errs = append(errs, it.Err)
		}
	}
	return errs
}

// editsOf returns the device nodes, mounts and hooks of one request.
func editsOf(all *edit.Set, request string) *edit.Set {
	var set edit.Set
	for _, d := range all.Devices {
		if d.Origin.Request == request {
			set.Devices = append(set.Devices, d)
		}
	}
	for _, m := range all.Mounts {
		if m.Origin.Request == request {
			set.Mounts = append(set.Mounts, m)
		}
	}
	for _, h := range all.Hooks {
		if h.Origin.Request == request {
			set.Hooks = append(set.Hooks, h)
		}
	}
	return &set
}

// withHostPaths removes the directory of another host root from the sources of mounts: all printed paths are host
// paths.
func (x *Explainer) withHostPaths(set edit.Set) edit.Set {
	for i := range set.Mounts {
		m := &set.Mounts[i]
		if rest, ok := strings.CutPrefix(m.Source, x.opts.Host.Dir()+"/"); ok && m.Origin.Source != edit.CDI {
			m.Source = "/" + rest
		}
	}
	return set
}
