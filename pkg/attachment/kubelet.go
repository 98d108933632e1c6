// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// Kubelet tells which devices the containers of a pod were given. Pod returns
// when ctx ends, whatever the kubelet does. podresources.Client is one.
type Kubelet interface {
	Pod(ctx context.Context, key allocation.PodKey) (allocation.Allocation, error)
}

const (
	// DefaultBudget is the longest that a Finder waits for the kubelet.
	DefaultBudget = 500 * time.Millisecond
	// share is the part of what is left of the caller's time that a Finder
	// spends on the kubelet at most.
	share = 3
	// again is how long it is remembered that the kubelet gave no answer about a
	// pod: nobody waits for it twice in that time.
	again = time.Second
	// maxRemembered bounds the pods of which that is remembered.
	maxRemembered = 256
)

// word is what can be known of who was given what.
type word struct {
	pod  allocation.Allocation // answered: what the kubelet says
	own  allocation.Container  // listed: this container's part of it
	from string                // answered: the kubelet as a source

	answered bool  // the kubelet was asked and told about the pod
	listed   bool  // it lists this container
	err      error // the kubelet is there, or has to be, and gave no answer
	absent   bool  // there is no kubelet to ask
}

// silence remembers for which pods the kubelet gave no answer.
type silence struct {
	mu   sync.Mutex
	pods map[allocation.PodKey]silent
}

type silent struct {
	err   error
	until time.Time
}

func (s *silence) get(key allocation.PodKey, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.pods[key]; ok && now.Before(e.until) {
		return e.err
	}
	return nil
}

func (s *silence) put(key allocation.PodKey, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.pods, key)
		return
	}
	if len(s.pods) >= maxRemembered {
		for k, e := range s.pods {
			if !now.Before(e.until) {
				delete(s.pods, k)
			}
		}
	}
	if len(s.pods) >= maxRemembered {
		return
	}
	if s.pods == nil {
		s.pods = map[allocation.PodKey]silent{}
	}
	s.pods[key] = silent{err, now.Add(again)}
}

// ask finds out what the container was given. It waits for the kubelet within
// the budget, and not at all where it gave no answer a moment ago.
func (f *Finder) ask(ctx context.Context, q *Query) word {
	var w word
	if why := f.noKubelet(); why != "" {
		w.absent = true
		if f.opts.KubeletRequired {
			w.err = fmt.Errorf("the kubelet cannot be asked, and kubelet.required allows nothing else to tell: %s; "+
				"mount its pod-resources directory here: %w", why, errdefs.ErrUnavailable)
		} else if f.kubeletWasHere() {
			q.unread(fmt.Errorf("the kubelet cannot be asked while it starts: %s: %w", why, errdefs.ErrUnavailable))
		}
		return w
	}
	if f.kubelet == nil {
		w.err = fmt.Errorf("there is a kubelet behind %s, and this program does not ask it: %w", f.opts.PodResourcesSocket, errdefs.ErrUnavailable)
		return w
	}
	key := q.key()
	wait := f.opts.Budget
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/share)
	}
	before := f.silence.get(key, time.Now())
	if before != nil {
		// Its answer may have come in the meantime; then it is there at once.
		wait = min(wait, 5*time.Millisecond)
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pod, err := f.kubelet.Pod(bounded, key)
	switch slow := errors.Is(err, context.DeadlineExceeded); {
	case err == nil:
		f.silence.put(key, nil, time.Now())
		w.answered, w.pod, w.from = true, pod, FromKubelet(cmp.Or(pod.Socket, f.opts.PodResourcesSocket))
		w.own, w.listed = pod.Container(q.Container)
	case slow && before != nil:
		w.err = before
	default:
		if slow && ctx.Err() == nil {
			f.silence.put(key, err, time.Now())
		}
		w.err = err
	}
	return w
}

// key is how the kubelet's answer is remembered: for this pod and no other of its
// name.
func (q *Query) key() allocation.PodKey {
	return allocation.PodKey{Namespace: q.Namespace, Name: q.Pod, UID: cmp.Or(q.PodUID, q.SandboxID)}
}

// noKubelet says why there is no kubelet that could be asked, or "". A socket
// without a kubelet behind it is not such a case: there the kubelet will be back.
func (f *Finder) noKubelet() string {
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

// kubeletWasHere reports whether the directory of the kubelet's socket exists: a kubelet
// that starts re-creates its socket in it.
func (f *Finder) kubeletWasHere() bool {
	if f.opts.PodResourcesSocket == "" {
		return false
	}
	_, err := f.host.Stat(path.Dir(f.opts.PodResourcesSocket))
	return err == nil
}
