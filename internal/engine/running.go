// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/devices"
)

// ResolveRunning works out what a running container gets now of its sandbox's networks: networks
// that were added since are in the plan, those that were removed are not. The request is the one of
// its creation; Have names what it has, including its mounts of the staging directory.
//
// The plan has Staging, Items and Unchecked only, and Staging is never nil: a running
// container gets neither variables nor mounts of its own nor device nodes. A request that cannot
// be delivered is skipped or unmanaged, and does not fail the others. The container keeps what it
// has, even if the present policy would deny it.
//
// Only a plan without Unchecked and without a skipped item says what the container no longer has.
// The error is of the request as a whole. A request that ran out of time is one.
func (e *Engine) ResolveRunning(ctx context.Context, req *Request) (*Plan, error) {
	if err := e.checkDirs(e.cfg.DeviceInfo.CNIDir, e.cfg.Multus.CacheDir); err != nil {
		return nil, &Error{Container: req.Name(), Errs: []error{err}}
	}
	p := &planner{Engine: e, ctx: ctx, req: *req, subject: Subject(req)}
	p.b = edit.NewBuilder(edit.Existing{Mounts: req.Have.Mounts})
	p.phase = phase{
		timeout: "out of time", isolatesFailures: true, awaitsSockets: true,
		noMount:  "the container was running when the network came",
		noDevice: "a running container gets no device nodes: the device is there once the container is re-created",
		keeps:    p.hasReceived,
	}
	q := query(req)
	q.Unread = func(err error) { p.unchecked = append(p.unchecked, err) }
	p.search = e.attachments.Search(ctx, q)
	found, allocated, err := p.search.Find()
	if err != nil {
		return nil, err
	}
	if _, err := e.host.Stat(e.cfg.DeviceInfo.CNIDir); err != nil && !hasOnlyClaims(req) {
		// Networks are removed from a pod file by file. A directory that is missing was
		// unmounted or replaced.
		p.unchecked = append(p.unchecked, fmt.Errorf("deviceInfo.cniDir: %w", err))
	}
	wants, err := annotation.Parse(req.Annotations, req.Container)
	if err != nil {
		return nil, err
	}
	for _, d := range wants.Devices {
		if d.Kind == annotation.Resource || d.Kind == annotation.NamedSocket {
			p.deliverRequestedDevice(d)
		}
	}
	p.deliverNetworks(wants.Networks, found)
	p.deliverAllocated(allocated)
	if len(p.errs) == 0 {
		_, err := p.addViewFile()
		p.fail(err)
	}
	if len(p.errs) == 0 {
		// The container keeps what it was given besides sockets.
		u := p.opts.Ledger.usageOf(req.SandboxID, req.Container)
		u.Sockets = p.countUsage().Sockets
		p.fail(p.checkLimits(u))
	}
	return p.result()
}

// hasOnlyClaims reports whether a running container has devices of claims and nothing of a network.
func hasOnlyClaims(req *Request) bool {
	var elements []devices.Device
	if req.View == nil || json.Unmarshal(req.View(), &elements) != nil || len(elements) == 0 {
		return false
	}
	return !slices.ContainsFunc(elements, func(e devices.Device) bool {
		c := e.Jackfield.Claim
		return c == nil || !strings.HasPrefix(e.Name, cmp.Or(c.PodClaim, c.Name)+"/"+c.Request)
	})
}

// MetadataFiles returns the host paths of the files in which drivers describe the container's claims,
// for a caller that watches them.
func (e *Engine) MetadataFiles(req *Request) []string {
	return e.attachments.MetadataFiles(query(req).MetadataFiles)
}

// hasReceived is phase.keeps of a running container.
func (p *planner) hasReceived(a *attachment.Attachment) (bool, error) {
	if a.Info == nil {
		return false, a.Err
	}
	if s, ok := p.socketOf(a); ok {
		if s.inContainer() {
			return false, nil
		}
		at, err := p.socketPath(s.path)
		return err == nil && p.hasSocket(at), err
	}
	nodes, err := p.nodesOf(a, &viewEntry{})
	return err == nil && len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n sysfs.Node) bool { return !p.hasNode(n) }), err
}
