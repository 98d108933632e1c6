// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/throttle"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/outcome"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// outcomes reports the outcome of each request to the metrics, the log, the status and the audit file.
type outcomes struct {
	*daemon
	audit      *auditLog
	generation func() uint64 // of the configuration in force
	refusals   throttle.Throttle[refusalKey]
}

// refusalKey is a reason why a container was refused. The kubelet tries again every few seconds.
type refusalKey struct{ namespace, pod, container, reason string }

// reportCreated reports the outcome of each request of a container that is created. It returns the record for
// the status; nil for none.
func (o *outcomes) reportCreated(pod *api.PodSandbox, c *api.Container, plan *engine.Plan) *status.Container {
	o.countItems(plan.Items)
	event, unmanaged := "", false
	for i := range plan.Items {
		switch plan.Items[i].Outcome {
		case engine.Unmanaged:
			unmanaged = true
		case engine.Injected:
			event = eventInjected
		case engine.Skipped:
			event = cmp.Or(event, eventSkipped)
		}
	}
	record := o.newRecord(pod, c, plan.Items, plan)
	logPlan(o.containerLog(pod, c), plan.Items)
	if event != "" {
		o.audit.write(event, nil, record, 0)
	}
	if event == eventInjected || unmanaged || len(record.Devices) > 0 {
		// The record of a container with an unmanaged network shows that the plugin was connected at its
		// creation, so that a later rule does not evict the container.
		return &record
	}
	return nil
}

// reportRefused reports why a container is not created.
func (o *outcomes) reportRefused(pod *api.PodSandbox, c *api.Container, err error) {
	var items []engine.Item
	problems := 1
	if all, ok := errors.AsType[*engine.Error](err); ok {
		items, problems = engine.WithheldItems(all.Items), len(all.Errs)
	}
	o.countItems(items)
	// Some problems belong to no single request: an annotation that cannot be parsed, a limit, a runtime that
	// cannot apply an edit, a full disk.
	for i := range items {
		if items[i].FailsContainer() {
			problems--
		}
	}
	if limit, ok := errors.AsType[*policy.LimitError](err); ok {
		o.countRefusal(limit.Rule)
		problems--
	}
	for range problems {
		o.counters.CountRequest(telemetry.SourceContainer, telemetry.Failed)
	}
	o.logRefusal(pod, c, withoutContainer(err), "container refused", o.newRecord(pod, c, items, nil))
}

// logRefusal writes a refusal to the log and the audit file, throttled.
func (o *outcomes) logRefusal(pod *api.PodSandbox, c *api.Container, err error, message string,
	record status.Container) {
	key := refusalKey{pod.GetNamespace(), pod.GetName(), containerName(c), diag.ErrorText(err)}
	log := o.containerLog(pod, c).WithError(err)
	o.refusals.Report(key, func(repeats int) {
		if repeats > 0 {
			record.Since = time.Now().UTC()
		}
		withRepeats(log, repeats).Error(message)
		o.audit.write(eventRefused, err, record, repeats)
	})
}

// withoutContainer returns the error without the name of the container, which is a field of the log and the
// audit file.
func withoutContainer(err error) error {
	if all, ok := err.(*engine.Error); ok {
		return &engine.Error{Errs: all.Errs, Items: all.Items}
	}
	return err
}

// countRefusal counts a refusal by a rule that belongs to no single request.
func (o *outcomes) countRefusal(rule string) {
	o.counters.CountRequest(telemetry.SourceContainer, telemetry.Refused)
	o.counters.RefusedBy.Add(rule)
}

// countItems counts requests, and refusals by rule.
func (o *outcomes) countItems(items []engine.Item) {
	for i := range items {
		it := &items[i]
		if it.Audit != "" {
			o.counters.Audited.Add(1)
		}
		if it.Outcome == engine.Withheld {
			continue
		}
		o.counters.CountRequest(telemetry.Source(it.Kind), telemetry.Outcome(it.Outcome))
		if it.Outcome == engine.Refused {
			rule := ""
			if r, ok := errors.AsType[*policy.RefusedError](it.Err); ok {
				rule = r.Rule
			}
			o.counters.RefusedBy.Add(rule)
		}
	}
}

// logPlan logs one line for everything that was injected, and a line for each of the first
// requests that were not injected or that have a note.
func logPlan(log *logrus.Entry, items []engine.Item) {
	lines, injected := outcome.Describe(items)
	n := 0
	for _, l := range lines {
		level, _ := logrus.ParseLevel(l.Level)
		if !log.Logger.IsLevelEnabled(level) {
			continue
		}
		if n++; n > outcome.MaxLines {
			continue
		}
		entry := log.WithField("request", l.Request)
		if l.Reason != "" {
			entry = entry.WithField("reason", l.Reason)
		}
		entry.Log(level, l.Text)
	}
	if more := n - outcome.MaxLines; more > 0 {
		log.Warnf("%d more lines about requests of this container are left out; audit.file has all of them", more)
	}
	if len(injected) > 0 {
		log.WithField("requests", injected).Info("injected")
	}
}

// newRecord returns the record of a container for status and audit. plan is nil for a refused container.
func (o *outcomes) newRecord(
	pod *api.PodSandbox, c *api.Container, items []engine.Item, plan *engine.Plan) status.Container {
	out := status.Container{
		Since: time.Now().UTC(), Generation: o.generation(),
		Namespace: pod.GetNamespace(), Pod: pod.GetName(), PodUID: pod.GetUid(), Sandbox: pod.GetId(),
		Container: containerName(c), ContainerID: c.GetId(),
	}
	for i := range items {
		it := &items[i]
		out.Requests = append(out.Requests, status.Request{
			Kind: string(it.Kind), Name: it.Name, Request: it.Request, From: it.From, File: it.File, Rule: it.Rule,
			Outcome: string(it.Outcome), Reason: it.Reason, Audit: it.Audit, Notes: it.Notes, Asked: it.Asked,
		})
	}
	if plan != nil {
		out.Edits, out.Devices = describeEdits(&plan.Set), plan.Devices
	}
	return out
}

// describeEdits returns the edits of a container for the status and the audit file, each with its request and rule.
func describeEdits(s *edit.Set) []status.Edit {
	out := make([]status.Edit, 0, len(s.Devices)+len(s.Mounts)+len(s.Env)+len(s.Hooks)+len(s.NetDevices)+len(s.GIDs)+1)
	add := func(o edit.Origin, kind, name, text string) {
		out = append(out, status.Edit{Kind: kind, Name: name, What: kind + " " + text,
			Request: o.Request, File: o.File, Field: o.Field, Rule: o.Rule})
	}
	for _, d := range s.Devices {
		add(d.Origin, "device", d.Path, d.Path)
	}
	for _, m := range s.Mounts {
		add(m.Origin, "mount", m.Destination, m.Destination+" from "+m.Source)
	}
	for _, e := range s.Env {
		add(e.Origin, "env", e.Name, e.Name)
	}
	for _, h := range s.Hooks {
		add(h.Origin, "hook", h.Path, string(h.Stage)+" "+h.Path)
	}
	for _, d := range s.NetDevices {
		add(d.Origin, "net device", d.Name, d.HostName+" as "+d.Name)
	}
	for _, g := range s.GIDs {
		id := strconv.FormatUint(uint64(g.ID), 10)
		add(g.Origin, "group", id, id)
	}
	if s.RDT != nil {
		add(s.RDT.Origin, "intelRdt", s.RDT.ClosID, s.RDT.ClosID)
	}
	if m := s.Memlock; m != nil {
		add(m.Origin, "memlock", m.Soft.String(), m.Soft.String())
	}
	return out
}

// refusal is the error that the runtime reports in an event of the pod. Its text has the name of the container
// and no sentinel.
type refusal struct {
	container string // namespace/pod/container
	err       error
}

func newRefusal(pod *api.PodSandbox, c *api.Container, err error) error {
	r := engine.Request{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: containerName(c)}
	return refusal{r.Name(), err}
}

func (r refusal) Error() string {
	return fmt.Sprintf("jackfield: container %q: %s", r.container, diag.ErrorText(withoutContainer(r.err)))
}

func (r refusal) Unwrap() error { return r.err }
