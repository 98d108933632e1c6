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

// Kubelet asks the kubelet behind socket for the devices that are allocated to the containers of a
// pod. It returns when ctx ends, even if the kubelet is unresponsive. kubelet.QueryPod is one.
type Kubelet func(ctx context.Context, host hostfs.Root, socket, namespace, name string) (allocation.Allocation, error)

const (
	// maxKubeletWait bounds the wait for the kubelet. A later answer is lost: while the kubelet is
	// slower than this, no container that needs its answer is created.
	maxKubeletWait = time.Second
	// maxKubeletShare is the part of the caller's remaining time that the kubelet may take: half.
	maxKubeletShare = 2
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

// queryKubelet asks the kubelet what is allocated to the container, within its share of the time.
func (f *Finder) queryKubelet(ctx context.Context, q *Query) *allocationAnswer {
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
		return &allocationAnswer{err: fmt.Errorf("the kubelet serves %s, but this program does not ask it: %w",
			f.opts.PodResourcesSocket, errdefs.ErrUnavailable)}
	}
	wait := maxKubeletWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/maxKubeletShare)
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pod, err := f.opts.Kubelet(bounded, f.host, f.opts.PodResourcesSocket, q.Namespace, q.Pod)
	if err != nil {
		return &allocationAnswer{err: err}
	}
	answer := &allocationAnswer{answered: true, pod: pod, source: FromKubelet(f.opts.PodResourcesSocket)}
	answer.container, answer.listed = pod.Container(q.Container)
	return answer
}

// whyNoKubelet returns why there is no kubelet to ask, or "". If only the socket exists, the
// kubelet is expected to come back.
func (f *Finder) whyNoKubelet() string {
	if f.opts.PodResourcesSocket == "" {
		return "no socket is configured"
	}
	if _, err := f.host.Stat(f.opts.PodResourcesSocket); errdefs.IsNotFound(err) {
		return "there is no " + f.opts.PodResourcesSocket
	}
	return ""
}
