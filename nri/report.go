// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/status"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

// begin and end stand around every handler:
//
//	defer p.end(telemetry.CreateContainer, p.begin())
//
// They cost no allocation.
func (p *Plugin) begin() time.Time {
	p.drain.enter()
	return time.Now()
}

func (p *Plugin) end(h telemetry.Handler, began time.Time) {
	p.counters.Handlers[h].Observe(time.Since(began))
	p.drain.leave()
}

// report counts what became of each request, and has it logged after the runtime
// has its answer.
func (p *Plugin) report(pod *api.PodSandbox, c *api.Container, plan *resolve.Plan) {
	p.count(plan.Items)
	event := ""
	for i := range plan.Items {
		switch plan.Items[i].Outcome {
		case resolve.Injected:
			event = eventInjected
		case resolve.Skipped:
			if event == "" {
				event = eventSkipped
			}
		}
	}
	if event == eventInjected {
		p.tracker.expect(c.GetId())
	}
	p.later.do(func() {
		logPlan(p.containerLog(pod, c), plan.Items)
		if event == "" {
			return
		}
		told := p.told(pod, c, plan.Items, plan)
		if event == eventInjected {
			p.tracker.given(told)
		}
		p.audit(event, nil, told)
	})
}

// refused counts, and has logged, why a container is not created.
func (p *Plugin) refused(pod *api.PodSandbox, c *api.Container, err error) {
	var (
		all   *resolve.Error
		items []resolve.Item
	)
	if errors.As(err, &all) {
		items = all.Items
	}
	items = resolve.WithheldItems(items)
	p.count(items)
	// What is at fault beside single requests: an annotation that cannot be read, a
	// limit, a runtime that cannot take an edit, a full disk.
	beside := 1
	if all != nil {
		beside = len(all.Errs)
	}
	for i := range items {
		if items[i].Err != nil && items[i].Outcome != resolve.Skipped {
			beside--
		}
	}
	var limit *policy.LimitError
	if errors.As(err, &limit) {
		p.countRefusal(limit.Rule)
		beside--
	}
	for range beside {
		p.counters.Count(telemetry.SourceContainer, telemetry.Failed)
	}
	p.later.do(func() {
		p.containerLog(pod, c).WithError(err).Error("container refused")
		p.audit(eventRefused, err, p.told(pod, c, items, nil))
	})
}

// countRefusal counts what a rule refuses to a container beside its requests.
func (p *Plugin) countRefusal(rule string) {
	p.counters.Count(telemetry.SourceContainer, telemetry.Refused)
	p.counters.RefusedBy.Add(rule)
}

func (p *Plugin) audit(event string, err error, told status.Container) {
	file := p.monitor.audit.Load()
	if file == nil {
		return
	}
	line := &auditLine{Time: told.Since.Format(time.RFC3339Nano), Event: event, Container: told}
	if err != nil {
		line.Error = err.Error()
	}
	file.put(line)
}

// count counts requests, and refusals by rule.
func (p *Plugin) count(items []resolve.Item) {
	for i := range items {
		it := &items[i]
		if it.Audit != "" {
			p.counters.Audited.Add()
		}
		if it.Outcome == resolve.Withheld {
			continue
		}
		p.counters.Count(sourceOf(it), outcomeOf(it.Outcome))
		if it.Outcome == resolve.Refused {
			var r *policy.RefusedError
			rule := ""
			if errors.As(it.Err, &r) {
				rule = r.Rule
			}
			p.counters.RefusedBy.Add(rule)
		}
	}
}

func sourceOf(it *resolve.Item) telemetry.Source {
	switch it.Kind {
	case resolve.KindCDI:
		return telemetry.SourceCDI
	case resolve.KindNetwork:
		return telemetry.SourceNetwork
	case resolve.KindHook:
		return telemetry.SourceHook
	case resolve.KindDeviceInjector:
		return telemetry.SourceDeviceInjector
	default:
		return telemetry.SourceResource
	}
}

func outcomeOf(o resolve.Outcome) telemetry.Outcome {
	switch o {
	case resolve.Injected:
		return telemetry.Injected
	case resolve.Present:
		return telemetry.Present
	case resolve.LeftAlone:
		return telemetry.LeftAlone
	case resolve.Skipped:
		return telemetry.Skipped
	case resolve.Refused:
		return telemetry.Refused
	default:
		return telemetry.Failed
	}
}

// maxLogged is for how many requests of a container the log has lines of their own: their
// author writes as many as an annotation holds.
const maxLogged = 16

// logPlan logs one line for all that was delivered, and a line for each of the first
// requests that were not, or of which there is something to say.
func logPlan(log *logrus.Entry, items []resolve.Item) {
	var injected []string
	logged, more := 0, 0
	line := func(write func()) {
		if logged++; logged > maxLogged {
			more++
			return
		}
		write()
	}
	for _, it := range items {
		if it.Audit != "" {
			line(func() {
				log.WithFields(logrus.Fields{"request": it.Request, "refusal": it.Audit}).Warn("mode enforce would refuse this")
			})
		}
		switch it.Outcome {
		case resolve.Injected:
			injected = append(injected, it.Request+" from "+it.File+" by "+ruleName(it.Rule))
			for _, n := range it.Notes {
				line(func() { log.WithField("request", it.Request).Info(n) })
			}
		case resolve.Present:
			if log.Logger.IsLevelEnabled(logrus.DebugLevel) {
				line(func() { log.WithField("request", it.Request).Debug("the container has it already") })
			}
		case resolve.LeftAlone:
			line(func() {
				log.WithFields(logrus.Fields{"request": it.Request, "file": it.File, "reason": it.Reason}).Info("left alone")
			})
		case resolve.Skipped:
			line(func() {
				log.WithFields(logrus.Fields{"request": it.Request, "reason": it.Reason}).Warn("optional request skipped")
			})
		}
	}
	if more > 0 {
		log.Warnf("and %d more lines about requests of this container; audit.file keeps all of them", more)
	}
	if len(injected) > 0 {
		log.WithField("requests", injected).Info("injected")
	}
}

// ruleName is a rule for the log; what hands over nothing of the host needs none.
func ruleName(rule string) string {
	if rule == "" {
		return "no rule"
	}
	return "rule " + rule
}
