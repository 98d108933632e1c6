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
func (s *Search) PodObject() (*allocation.Pod, error) {
	if s.podQueried {
		return s.pod, s.podErr
	}
	s.podQueried = true
	socket := s.opts.PodsSocket
	if socket == "" || s.opts.Pods == nil {
		s.podErr = fmt.Errorf("this program does not query it, or kubelet.podsSocket is \"\": %w", errdefs.ErrNotFound)
	} else if err := s.checkPodsDir(path.Dir(socket)); err != nil {
		s.podErr = err
	} else if _, err := s.host.Stat(socket); errdefs.IsNotFound(err) {
		s.podErr = fmt.Errorf("there is no %s: %w", socket, errdefs.ErrNotFound)
	} else {
		s.podErr = s.callKubelet(podsPart, func(ctx context.Context) (err error) {
			s.pod, err = s.opts.Pods(ctx, s.host, socket, s.q.Namespace, s.q.Pod, s.q.PodUID)
			return err
		})
	}
	return s.pod, s.podErr
}

func (s *Search) checkPodsDir(dir string) error {
	if s.opts.CheckResponsive == nil {
		return nil
	}
	return s.opts.CheckResponsive(dir)
}

// networkStatus is the decoded part of an element of the annotation network-status. A user can write the
// annotation, and it has no part in deciding on devices, so its device-info is not even decoded.
type networkStatus struct {
	Name      string `json:"name"`
	Interface string `json:"interface"`
}

// statusNetworks returns the networks that the pod's network-status lists for an interface, by a hint
// that can be outdated or forged. The result is nil if the Pods API does not return one.
func (s *Search) statusNetworks(ifName string) (names []string) {
	pod, err := s.PodObject()
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
