// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/report/status"
)

const (
	// refusalInterval is the time between two reports of the same refusal. The kubelet tries again
	// every few seconds.
	refusalInterval = time.Minute
	// maxRefusals bounds the refusals that are remembered. All others are reported each time.
	maxRefusals = 4096
)

// refusalThrottle reports the first refusal of a container at once, and then once a minute how often
// the container was refused for the same reason.
type refusalThrottle struct {
	mu       sync.Mutex
	closed   bool
	refusals map[refusalKey]*repeatedRefusal
}

type refusalKey struct{ namespace, pod, container, reason string }

type repeatedRefusal struct {
	repeats int         // since the last report
	report  func(n int) // of the last refusal
	timer   *time.Timer
}

// reportThrottled calls report with 0 for a new refusal, and later with the number of repetitions.
func (t *refusalThrottle) reportThrottled(key refusalKey, report func(repeats int)) {
	t.mu.Lock()
	if r := t.refusals[key]; r != nil {
		r.repeats++
		r.report = report
		t.mu.Unlock()
		return
	}
	if len(t.refusals) < maxRefusals && !t.closed {
		if t.refusals == nil {
			t.refusals = make(map[refusalKey]*repeatedRefusal)
		}
		t.refusals[key] = &repeatedRefusal{timer: time.AfterFunc(refusalInterval, func() { t.flush(key) })}
	}
	t.mu.Unlock()
	report(0)
}

// flush reports the repetitions of a refusal, and forgets a refusal without any.
func (t *refusalThrottle) flush(key refusalKey) {
	t.mu.Lock()
	r := t.refusals[key]
	if r == nil {
		t.mu.Unlock()
		return
	}
	n, report := r.repeats, r.report
	r.repeats = 0
	if n == 0 || t.closed {
		delete(t.refusals, key)
	} else {
		r.timer.Reset(refusalInterval)
	}
	t.mu.Unlock()
	if n > 0 {
		report(n)
	}
}

// close reports what is not reported yet.
func (t *refusalThrottle) close() {
	t.mu.Lock()
	t.closed = true
	var keys []refusalKey
	for key, r := range t.refusals {
		r.timer.Stop()
		keys = append(keys, key)
	}
	t.mu.Unlock()
	for _, key := range keys {
		t.flush(key)
	}
}

// logRefusal writes a refusal to the log and the audit file, throttled.
func (o *outcomes) logRefusal(pod *api.PodSandbox, c *api.Container, err error, message string,
	record status.Container) {
	key := refusalKey{pod.GetNamespace(), pod.GetName(), containerName(c), diag.ErrorText(err)}
	log := o.containerLog(pod, c).WithError(err)
	o.refusals.reportThrottled(key, func(repeats int) {
		if repeats > 0 {
			log = log.WithField("repeats", repeats)
			record.Since = time.Now().UTC()
		}
		log.Error(message)
		o.audit.write(eventRefused, err, record, repeats)
	})
}
