// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/internal/source/hooksd/ocihook"
)

// inputs are the values from which a container's plan is resolved. They are complete before the first candidate, and do
// not change afterwards. Only cdi and search read files when a candidate needs them.
type inputs struct {
	ctx     context.Context
	host    hostfs.Root
	cfg     *config.Config
	opts    *Options
	policy  *policy.Policy
	roots   *socketRoots
	cdi     *cdiLookup
	finder  *attachment.Finder
	req     *Request
	created policy.Subject // with the labels that the adapter knows; see subject
	labels  bool           // created has the pod's present labels, if they can be known
	explain bool           // the plan is only shown
	// hostUser returns the user of the host that the container runs as. Reading the mappings of a user namespace takes
	// several system calls, so all sockets share the result.
	hostUser func() (*User, error)
	// openable returns the devices that other living containers can open. All nodes of the request share the result.
	openable func() ([]openableDevice, error)
	// running is set for a container that runs. It gets sockets and files, but no mounts and device nodes. A failing
	// request is skipped, so that the others are delivered.
	running bool

	annotated annotation.Requests
	search    *attachment.Search
	attached  []attachment.Attachment // the networks of the sandbox
	allocated []attachment.Attachment // the devices of the container that belong to no network
	hooks     []*ocihook.Hook
}

func newInputs(ctx context.Context, e *Engine, req *Request) *inputs {
	in := &inputs{ctx: ctx, host: e.host, cfg: e.cfg, opts: &e.opts, policy: e.policy, roots: e.roots,
		cdi: &cdiLookup{registry: e.registry, opts: &e.opts}, finder: e.attachments, req: req, created: Subject(req)}
	in.hostUser = sync.OnceValues(func() (*User, error) { return findHostUser(in) })
	in.openable = sync.OnceValues(in.findOpenable)
	return in
}

// findAttachments finds the networks of the sandbox, and the devices that are allocated to the container
// and belong to no network. Unless the container requests something, it leaves out networks that no rule grants.
// Without mayRequest, the pod requests no network. unread receives the errors of sources that cannot be read.
func (in *inputs) findAttachments(requested, mayRequest bool, unread func(error)) error {
	q := query(in.req)
	q.Wanted = func(a *attachment.Attachment) bool { return requested || in.managesNetwork(a) }
	if in.explain {
		q.Unread = unread
	}
	in.search = in.finder.Search(in.ctx, q)
	err := in.opts.checkDirs(in.cfg.DeviceInfo.CNIDir)
	if err == nil && len(q.MetadataFiles) > 0 && q.Wanted(&attachment.Attachment{}) {
		err = in.opts.checkDirs(in.cfg.Kubelet.PluginsDir)
	}
	switch {
	case err != nil && !requested && in.opts.Hooks != nil && !mayRequest:
		return nil // the pod's networks are unknown, but it requests none, and can get hooks
	case err != nil:
		return err
	}
	return in.runSearch()
}

// runSearch finds the attachments of the search.
func (in *inputs) runSearch() (err error) {
	in.attached, in.allocated, err = in.search.Find()
	return err
}

// parseAnnotations parses the requests of the pod's annotations.
func (in *inputs) parseAnnotations() error {
	requests, err := annotation.Parse(in.req.Annotations, in.req.Container)
	if err == nil && !in.running {
		requests, err = requests.ExpandAliases(in.cfg.CDI.Aliases)
	}
	if err != nil {
		return err
	}
	in.annotated = requests
	return nil
}

// cdiNames returns the names of the requested CDI devices.
func (in *inputs) cdiNames() []string {
	names := slices.Clone(in.req.CDIDevices)
	for _, d := range in.annotated.Devices {
		if d.Kind == annotation.CDI {
			names = append(names, d.Name)
		}
	}
	return names
}

// expectsHotplug reports whether networks can be added while the container runs: "auto" in the annotation includes
// networks that are added later.
func (in *inputs) expectsHotplug() bool {
	networks := in.annotated.Networks
	return networks.Mode == annotation.NetworksAuto && networks.Key != "" && in.opts.Staged()
}

// checkDeadline returns an error once the caller has given up.
func (in *inputs) checkDeadline() error {
	err := in.ctx.Err()
	switch {
	case err == nil:
		return nil
	case in.running:
		return fmt.Errorf("out of time: %w", err)
	}
	return fmt.Errorf("given up before the runtime's deadline: %w", err)
}

// subject returns the subject of policy. If a rule selects pods by labels, it has the pod's present labels
// from the kubelet's Pods API. Without that API it has those that the adapter knows, which NRI has from
// the sandbox's creation. A manifest that is explained has labels of its own.
func (in *inputs) subject() policy.Subject {
	if in.labels || in.search == nil || in.req.FromManifest || !in.policy.SelectsLabels() {
		return in.created
	}
	in.labels = true
	if pod, err := in.search.PodObject(); err == nil {
		in.created.Labels, in.created.LabelsUnknown = pod.Labels, false
	}
	return in.created
}

// managesNetwork reports whether a rule grants any socket or device of the attachment's network.
func (in *inputs) managesNetwork(a *attachment.Attachment) bool {
	s := in.subject()
	s.NetworkGuessed, s.Explanations = a.NetworkGuessed, new(int)
	grant, err := in.policy.Network(s, a.PolicyNetwork())
	return err == nil && grant.Rule != ""
}

// subjectFor returns the subject of policy for the socket or device of an attachment.
func (in *inputs) subjectFor(a *attachment.Attachment) policy.Subject {
	s := in.subject()
	s.Network, s.NetworkGuessed = a.PolicyNetwork(), a.NetworkGuessed
	return s
}

// hasSocket reports whether a running container has the socket.
func (in *inputs) hasSocket(at socketPath) bool {
	return in.req.HasSocket != nil && in.req.HasSocket(at.canonical, at.rel)
}

// hasNode reports whether the container has the node already, from the device plugin
// or the runtime.
func (in *inputs) hasNode(n sysfs.Node) bool {
	return slices.ContainsFunc(in.req.Have.Devices, func(d edit.Device) bool {
		return edit.SameContainerPath(d.Path, n.Path) && d.Type == "c" &&
			d.Major == int64(n.Major) && d.Minor == int64(n.Minor)
	})
}

// isKeyOfContainer reports whether an annotation's key names this container.
func (in *inputs) isKeyOfContainer(key string) bool {
	return strings.HasSuffix(key, "/container."+in.req.Container)
}
