// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

// Pods queries the kubelet's Pods API behind socket for its own object of a pod. It must return when ctx
// ends. kubelet.QueryPodObject implements it.
type Pods func(ctx context.Context, host hostfs.Root, socket, namespace, name, uid string) (*allocation.Pod, error)

// PodObject returns the kubelet's own object of the pod. The first call queries the kubelet. Everything
// but extended resources of DRA drivers works without it, so most callers ignore the error. A node whose
// kubelet serves no Pods API is errdefs.ErrNotFound.
func (s *Search) PodObject() (*allocation.Pod, error) { return s.kubelet.podObject() }

// podObject implements [Search.PodObject].
func (k *kubeletQuery) podObject() (*allocation.Pod, error) {
	if k.podQueried {
		return k.pod, k.podErr
	}
	k.podQueried = true
	socket := k.opts.PodsSocket
	if socket == "" || k.opts.Pods == nil {
		k.podErr = fmt.Errorf("this program does not query it, or kubelet.podsSocket is \"\": %w", errdefs.ErrNotFound)
	} else if err := k.checkPodsDir(path.Dir(socket)); err != nil {
		k.podErr = err
	} else if _, err := k.host.Stat(socket); errdefs.IsNotFound(err) {
		k.podErr = fmt.Errorf("there is no %s: %w", socket, errdefs.ErrNotFound)
	} else {
		k.podErr = k.callWithin(podsPart, func(ctx context.Context) (err error) {
			k.pod, err = k.opts.Pods(ctx, k.host, socket, k.q.Namespace, k.q.Pod, k.q.PodUID)
			return err
		})
	}
	return k.pod, k.podErr
}

// checkPodsDir returns an error if the directory of the kubelet's socket is unresponsive, before anything opens it.
func (k *kubeletQuery) checkPodsDir(dir string) error {
	if k.opts.CheckResponsive == nil {
		return nil
	}
	return k.opts.CheckResponsive(dir)
}

// networkStatus is the decoded part of an element of the annotation network-status. A user can write the
// annotation, and it has no part in deciding on devices, so its device-info is not even decoded.
type networkStatus struct {
	Name      string `json:"name"`
	Interface string `json:"interface"`
}

// statusNetworks returns the networks that the pod's network-status lists for an interface, by a hint
// that can be outdated or forged. The result is nil if the Pods API does not return one.
func (k *kubeletQuery) statusNetworks(ifName string) (names []string) {
	pod, err := k.podObject()
	if err != nil || pod.NetworkStatus == "" {
		return nil
	}
	var list []networkStatus
	if (jsontree.Decoder{}).Unmarshal(pod.NetworkStatus, &list) != nil || len(list) > maxSelections {
		return nil
	}
	for _, n := range list {
		if n.Interface == ifName && checkNetwork(n.Name) == nil {
			names = append(names, n.Name)
		}
	}
	return names
}
