// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// Kubelet returns the devices that are allocated to the containers of a pod. Pod returns
// when ctx ends, even if the kubelet is unresponsive. podresources.Client implements it.
type Kubelet interface {
	Pod(ctx context.Context, key allocation.PodKey) (allocation.Allocation, error)
}

const (
	// DefaultBudget bounds the wait for the kubelet.
	DefaultBudget = 500 * time.Millisecond
	// budgetDivisor is the part of the caller's remaining time that the kubelet may take: a
	// third.
	budgetDivisor = 3
	// slowPeriod is how long a pod without an answer is remembered. A second call in this
	// period does not wait.
	slowPeriod = time.Second
	// slowPodWait is the wait for the kubelet's answer about a slow pod, which may be
	// available by now.
	slowPodWait = 5 * time.Millisecond
	// maxSlowPods bounds the pods that are remembered.
	maxSlowPods = 256
)

// allocationAnswer is the kubelet's answer about the pod, or why there is none.
type allocationAnswer struct {
	answered bool                  // the kubelet knows the pod
	pod      allocation.Allocation // if answered
	source   string                // if answered: the kubelet, for [Claim.Source]

	listed    bool                 // the kubelet lists this container
	container allocation.Container // if listed

	absent bool  // there is no kubelet to ask
	err    error // the kubelet did not answer, or is required and absent
}

// slowPods remembers the pods about which the kubelet did not answer in time.
type slowPods struct {
	mu   sync.Mutex
	pods map[allocation.PodKey]slowPod
}

type slowPod struct {
	err   error
	until time.Time
}

func (s *slowPods) errorOf(key allocation.PodKey, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pods[key]; ok && now.Before(e.until) {
		return e.err
	}
	return nil
}

func (s *slowPods) remember(key allocation.PodKey, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.pods, key)
		return
	}
	maps.DeleteFunc(s.pods, func(_ allocation.PodKey, e slowPod) bool { return !now.Before(e.until) })
	if len(s.pods) >= maxSlowPods {
		return
	}
	s.pods[key] = slowPod{err, now.Add(slowPeriod)}
}

// queryKubelet asks the kubelet what is allocated to the container, within the budget.
func (f *Finder) queryKubelet(ctx context.Context, q *Query) *allocationAnswer {
	if why := f.whyNoKubelet(); why != "" {
		answer := &allocationAnswer{absent: true}
		if f.opts.KubeletRequired {
			answer.err = fmt.Errorf("the kubelet cannot be asked, and kubelet.required accepts no other source: %s; "+
				"mount its pod-resources directory here: %w", why, errdefs.ErrUnavailable)
		} else if f.hasKubeletDir() {
			q.reportUnread(fmt.Errorf("the kubelet cannot be asked while it starts: %s: %w", why, errdefs.ErrUnavailable))
		}
		return answer
	}
	if f.kubelet == nil {
		return &allocationAnswer{err: fmt.Errorf("the kubelet serves %s, but this program does not ask it: %w", f.opts.PodResourcesSocket, errdefs.ErrUnavailable)}
	}
	key := q.podKey()
	wait := f.opts.Budget
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/budgetDivisor)
	}
	earlier := f.slow.errorOf(key, time.Now())
	if earlier != nil {
		wait = min(wait, slowPodWait)
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pod, err := f.kubelet.Pod(bounded, key)
	if err != nil {
		switch slow := errors.Is(err, context.DeadlineExceeded); {
		case slow && earlier != nil:
			err = earlier
		case slow && ctx.Err() == nil:
			f.slow.remember(key, err, time.Now())
		}
		return &allocationAnswer{err: err}
	}
	f.slow.remember(key, nil, time.Now())
	answer := &allocationAnswer{answered: true, pod: pod, source: FromKubelet(cmp.Or(pod.Socket, f.opts.PodResourcesSocket))}
	answer.container, answer.listed = pod.Container(q.Container)
	return answer
}

// podKey identifies the pod for the kubelet's client, which keeps answers: this pod, and not
// another one of its name.
func (q *Query) podKey() allocation.PodKey {
	return allocation.PodKey{Namespace: q.Namespace, Name: q.Pod, UID: cmp.Or(q.PodUID, q.SandboxID)}
}

// whyNoKubelet returns why there is no kubelet to ask, or "". If only the socket exists, the
// kubelet is expected to come back.
func (f *Finder) whyNoKubelet() string {
	if f.opts.PodResourcesSocket == "" {
		if f.kubelet == nil {
			return "no socket is configured"
		}
		return ""
	}
	if _, err := f.host.Stat(f.opts.PodResourcesSocket); errdefs.IsNotFound(err) {
		return "there is no " + f.opts.PodResourcesSocket
	}
	return ""
}

// hasKubeletDir reports whether the directory of the kubelet's socket exists. A starting
// kubelet re-creates its socket there.
func (f *Finder) hasKubeletDir() bool {
	if f.opts.PodResourcesSocket == "" {
		return false
	}
	_, err := f.host.Stat(path.Dir(f.opts.PodResourcesSocket))
	return err == nil
}
