// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

// Kubelet queries the kubelet behind socket for the devices of a pod's containers. It must return
// when ctx ends, even if the kubelet is unresponsive. kubelet.QueryPod implements it.
type Kubelet func(ctx context.Context, host hostfs.Root, socket, namespace, name string) (allocation.Allocation, error)

const (
	// maxKubeletWait bounds the wait for the kubelet. While the kubelet takes longer, no container
	// that depends on its response can be created.
	maxKubeletWait = time.Second
	// maxKubeletShare is the divisor of the caller's remaining time: the kubelet can take half of
	// it.
	maxKubeletShare = 2
	// podsPart is the divisor of that time for the Pods API. The rest is for Pod Resources, which alone
	// decide on owners.
	podsPart = 2
)

// allocationAnswer is the kubelet's response about the pod, or the reason why there is none.
type allocationAnswer struct {
	answered bool                  // the kubelet lists the pod
	pod      allocation.Allocation // set if answered
	source   string                // set if answered: the kubelet, for [Claim.Source]

	listed    bool                 // the kubelet lists this container
	container allocation.Container // set if listed

	absent bool  // the kubelet has no socket
	err    error // the kubelet did not respond, or is required and absent
}

// kubeletQuery queries the kubelet for one container, each of its APIs at most once.
type kubeletQuery struct {
	*Finder
	ctx context.Context
	q   *Query

	called   bool
	timeLeft time.Duration // for all calls

	answer *allocationAnswer // nil until the first query

	podQueried bool
	pod        *allocation.Pod // of the Pods API
	podErr     error           // why pod is nil
}

// allocation returns the kubelet's response. The first call queries the kubelet.
func (k *kubeletQuery) allocation() *allocationAnswer {
	if k.answer == nil {
		k.answer = k.query()
	}
	return k.answer
}

// query queries the kubelet for the container's devices, within its share of the time.
func (k *kubeletQuery) query() *allocationAnswer {
	f, q := k.Finder, k.q
	if why := f.whyNoKubelet(); why != "" {
		answer := &allocationAnswer{absent: true}
		if f.opts.KubeletRequired {
			answer.err = fmt.Errorf("the kubelet cannot be asked, and kubelet.required accepts no other source: %s; "+
				"mount its pod-resources directory here: %w", why, errdefs.ErrUnavailable)
		} else if _, err := f.host.Stat(path.Dir(f.opts.PodResourcesSocket)); err == nil {
			// A starting kubelet re-creates its socket in this directory.
			q.reportUnread(fmt.Errorf("the kubelet cannot be asked while it starts: %s: %w", why,
				errdefs.ErrUnavailable))
		}
		return answer
	}
	if f.opts.Kubelet == nil {
		return &allocationAnswer{err: fmt.Errorf("the kubelet serves %s, but this program does not query it: %w",
			f.opts.PodResourcesSocket, errdefs.ErrUnavailable)}
	}
	var pod allocation.Allocation
	err := k.callWithin(1, func(ctx context.Context) (err error) {
		pod, err = f.opts.Kubelet(ctx, f.host, f.opts.PodResourcesSocket, q.Namespace, q.Pod)
		return err
	})
	if err != nil {
		return &allocationAnswer{err: err}
	}
	answer := &allocationAnswer{answered: true, pod: pod, source: FromKubelet(f.opts.PodResourcesSocket)}
	answer.container, answer.listed = pod.Container(q.Container)
	return answer
}

// callWithin runs a call of the kubelet within a part of the time that is left for all of them. The
// first call sets that time.
func (k *kubeletQuery) callWithin(part time.Duration, call func(ctx context.Context) error) error {
	deadline, bounded := k.ctx.Deadline()
	if !k.called {
		k.called, k.timeLeft = true, maxKubeletWait
		if bounded {
			k.timeLeft = min(k.timeLeft, time.Until(deadline)/maxKubeletShare)
		}
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.timeLeft/part)
	defer cancel()
	began := time.Now()
	defer func() { k.timeLeft -= time.Since(began) }()
	return call(ctx)
}

// whyNoKubelet returns the reason why the kubelet cannot be queried, or "". If the socket exists,
// the kubelet is expected to be back soon.
func (f *Finder) whyNoKubelet() string {
	if f.opts.PodResourcesSocket == "" {
		return "no socket is configured"
	}
	if _, err := f.host.Stat(f.opts.PodResourcesSocket); errdefs.IsNotFound(err) {
		return "there is no " + f.opts.PodResourcesSocket
	}
	return ""
}
