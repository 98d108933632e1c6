// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// PodOptions of a pod. The zero value is a pod "pod" in the namespace "default".
type PodOptions struct {
	Name, Namespace     string
	Labels, Annotations map[string]string
	// UID; empty: a new one.
	UID string
	// HostNetwork pods have no network of their own, so CNI is not called.
	HostNetwork bool
	// Privileged allows privileged containers.
	Privileged bool
	// UserNS is the host's uid of root in the pod's user namespace, which has 65,536 users; 0: no user
	// namespace.
	UserNS uint32
	// Attempt is the kubelet's count of sandboxes of this pod.
	Attempt uint32
}

// Pod is a pod's sandbox.
type Pod struct {
	// ID is the sandbox's ID, CNI's container ID and NRI's pod ID at once.
	ID   string
	node *Node
	cfg  *cri.PodSandboxConfig
}

// RunPod runs a pod's sandbox, as the kubelet does for a new pod.
func (n *Node) RunPod(ctx context.Context, o PodOptions) (*Pod, error) {
	if o.Name == "" {
		o.Name = "pod"
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.UID == "" {
		o.UID = newID(16)
	}
	labels := map[string]string{
		"io.kubernetes.pod.name": o.Name, "io.kubernetes.pod.namespace": o.Namespace, "io.kubernetes.pod.uid": o.UID}
	maps.Copy(labels, o.Labels)
	network := cri.NamespaceMode_POD
	if o.HostNetwork {
		network = cri.NamespaceMode_NODE
	}
	cfg := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: o.Name, Namespace: o.Namespace, Uid: o.UID, Attempt: o.Attempt},
		LogDirectory: n.path("logs", o.UID),
		Labels:       labels,
		Annotations:  o.Annotations,
		// The pod must not get the machine's resolv.conf.
		DnsConfig: &cri.DNSConfig{Servers: []string{"127.0.0.1"}},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: jail.CgroupParent() + "/" + o.UID,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				Privileged: o.Privileged,
				NamespaceOptions: &cri.NamespaceOption{
					Network: network, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD},
			},
		},
	}
	if o.UserNS != 0 {
		ids := []*cri.IDMapping{{HostId: o.UserNS, ContainerId: 0, Length: 1 << 16}}
		cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
	}
	if !o.HostNetwork {
		cfg.Hostname = o.Name
	}
	if err := os.MkdirAll(cfg.LogDirectory, 0o755); err != nil {
		return nil, fmt.Errorf("run pod %q: %w", o.Name, err)
	}
	r, err := n.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		return nil, fmt.Errorf("run pod %q: %w", o.Name, err)
	}
	return &Pod{ID: r.GetPodSandboxId(), node: n, cfg: cfg}, nil
}

// Name, Namespace and UID identify the pod as Kubernetes does.
func (p *Pod) Name() string      { return p.cfg.GetMetadata().GetName() }
func (p *Pod) Namespace() string { return p.cfg.GetMetadata().GetNamespace() }
func (p *Pod) UID() string       { return p.cfg.GetMetadata().GetUid() }

// Status returns the sandbox's state as CRI reports it.
func (p *Pod) Status(ctx context.Context) (*cri.PodSandboxStatus, error) {
	r, err := p.node.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID})
	if err != nil {
		return nil, fmt.Errorf("get status of pod %q: %w", p.Name(), err)
	}
	return r.GetStatus(), nil
}

// OCISpec returns the config.json that runc got for the sandbox.
func (p *Pod) OCISpec() (*rspec.Spec, error) { return p.node.bundleSpec(p.ID) }

// Stop stops the pod with its containers, and tears its network down.
func (p *Pod) Stop(ctx context.Context) error {
	_, err := p.node.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.ID})
	if err != nil {
		return fmt.Errorf("stop pod %q: %w", p.Name(), err)
	}
	return nil
}

// Remove stops the pod and removes it with its containers and their cgroups.
func (p *Pod) Remove(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.node.removePod(ctx, p.ID, p.cfg.GetLinux().GetCgroupParent(), p.cfg.GetLogDirectory())
}

func (n *Node) removePod(ctx context.Context, id, cgroup, logs string) error {
	if _, err := n.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("remove pod %q: %w", id, err)
	}
	// The kubelet would do this.
	err := os.RemoveAll(logs)
	mounts, merr := jail.CgroupMounts()
	for _, m := range mounts {
		if rm := os.Remove(filepath.Join(m, cgroup)); rm != nil && !errors.Is(rm, os.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}
	return errors.Join(err, merr)
}

// RemoveAllPods removes every pod of the node.
func (n *Node) RemoveAllPods(ctx context.Context) error {
	list, err := n.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var errs []error
	for _, s := range list.GetItems() {
		uid := s.GetMetadata().GetUid()
		if _, err := n.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
			errs = append(errs, fmt.Errorf("stop pod %q: %w", s.GetMetadata().GetName(), err))
			continue
		}
		errs = append(errs, n.removePod(ctx, s.GetId(), jail.CgroupParent()+"/"+uid, n.path("logs", uid)))
	}
	return errors.Join(errs...)
}

func newID(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
