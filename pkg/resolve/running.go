// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/sysfs"
)

// Running works out what a container that runs gets now of its sandbox's networks:
// those that came since are in the plan, those that went are not. The request is the
// one of its creation; Have names what it has, its mounts of the staging directory
// among it.
//
// The plan has Staging, Items and Unchecked only, and Staging is never nil: a running
// container gets neither variables nor mounts of its own nor device nodes. What of it
// cannot be delivered is an item with an error, or left alone with a reason, and fails
// nothing else. What the container has already it keeps, whatever the policy says now.
//
// Only a plan without Unchecked, and without an item that has an error, says what the
// container has no more. The error is of the request as a whole; a request that ran out
// of time is one.
func (e *Engine) Running(ctx context.Context, req *Request) (*Plan, error) {
	if err := e.answering(e.cfg.DeviceInfo.CNIDir, e.cfg.Multus.CacheDir); err != nil {
		return nil, &Error{Container: req.Name(), Errs: []error{err}}
	}
	subject := Subject(req)
	var unchecked []error
	q := query(req)
	q.Wanted = func(*attachment.Attachment) bool { return true }
	q.Unread = func(err error) { unchecked = append(unchecked, err) }
	found, allocated, err := e.attachments.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	if _, err := e.host.Stat(e.cfg.DeviceInfo.CNIDir); err != nil {
		// Networks are taken from a pod file by file. A directory that is missing is one
		// that was unmounted or replaced.
		unchecked = append(unchecked, fmt.Errorf("deviceInfo.cniDir: %w", err))
	}
	wants, err := annotation.Parse(req.Annotations, req.Container)
	if err != nil {
		return nil, err
	}
	p := &planner{Engine: e, memory: &memory{engine: e}, ctx: ctx, req: *req, b: edits.NewBuilder(&edits.Set{}, edits.Existing{}), subject: subject, running: true, unchecked: unchecked}
	for _, d := range wants.Devices {
		if d.Kind == annotation.Resource {
			p.device(d)
		}
	}
	p.networks(wants.Networks, found)
	p.allocated(allocated)
	if len(p.errs) > 0 {
		return nil, &Error{Container: req.Name(), Errs: p.errs, Items: p.items}
	}
	if err := p.addView(); err != nil {
		return nil, err
	}
	if err := p.limit(); err != nil {
		return nil, err
	}
	return &Plan{Staging: p.stage, Items: p.items, Usage: p.counted, Unchecked: p.unchecked}, nil
}

// keeps reports whether a running container has what an attachment brings. An error
// says that this cannot be told.
func (p *planner) keeps(a *attachment.Attachment) (bool, error) {
	if !p.running || a.Info == nil {
		return false, a.Err
	}
	if s, ok := p.socketOf(a); ok {
		if p.req.Holds == nil || s.inContainer() {
			return false, nil
		}
		at, err := p.place(s.path)
		return err == nil && p.req.Holds(at.canonical, at.rel), err
	}
	nodes, err := p.nodes(a, &viewEntry{})
	return err == nil && len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n sysfs.Node) bool { return !p.has(n) }), err
}

// mounts calls f with what is mounted in the container: what it has, and what it gets.
func (p *planner) mounts(f func(*edits.Mount) bool) {
	if !p.running {
		p.b.Mounts(f)
		return
	}
	for i := range p.req.Have.Mounts {
		if !f(&p.req.Have.Mounts[i]) {
			return
		}
	}
}
