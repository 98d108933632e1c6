// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerOptions of a container. The zero value is a container "main" of Image that sleeps.
type ContainerOptions struct {
	Name string
	// Image; empty: Image.
	Image         string
	Command, Args []string
	// Env has entries "NAME=value".
	Env                 []string
	Mounts              []*cri.Mount
	Devices             []*cri.Device
	CDIDevices          []string
	Labels, Annotations map[string]string
	// WithoutLabels leaves out the kubelet's labels, as other clients of CRI do.
	WithoutLabels bool
	// User and Group are the container's user and group; 0: root. Groups are supplementary.
	User, Group    int64
	Groups         []int64
	ReadonlyRootfs bool
	Privileged     bool
	// Capabilities to add and to drop; nil: the runtime's defaults.
	Capabilities *cri.Capability
	WorkingDir   string
	// TTY gives the container's process a terminal to write to.
	TTY bool
	// Attempt is the kubelet's count of restarts.
	Attempt uint32
}

// Container is a container of a pod.
type Container struct {
	ID  string
	pod *Pod
	cfg *cri.ContainerConfig
}

// Create creates a container and does not start it. NRI plugins are called here.
func (p *Pod) Create(ctx context.Context, o ContainerOptions) (*Container, error) {
	if o.Name == "" {
		o.Name = "main"
	}
	if o.Image == "" {
		o.Image = Image
	}
	labels := map[string]string{
		"io.kubernetes.container.name": o.Name, "io.kubernetes.pod.name": p.Name(),
		"io.kubernetes.pod.namespace": p.Namespace(), "io.kubernetes.pod.uid": p.UID()}
	if o.WithoutLabels {
		labels = map[string]string{}
	}
	maps.Copy(labels, o.Labels)
	cfg := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: o.Name, Attempt: o.Attempt},
		Image:       &cri.ImageSpec{Image: o.Image, UserSpecifiedImage: o.Image},
		Command:     o.Command,
		Args:        o.Args,
		WorkingDir:  o.WorkingDir,
		Tty:         o.TTY,
		Mounts:      o.Mounts,
		Devices:     o.Devices,
		Labels:      labels,
		Annotations: o.Annotations,
		LogPath:     fmt.Sprintf("%s-%d.log", o.Name, o.Attempt),
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions:   p.cfg.GetLinux().GetSecurityContext().GetNamespaceOptions(),
				RunAsUser:          &cri.Int64Value{Value: o.User},
				SupplementalGroups: o.Groups,
				ReadonlyRootfs:     o.ReadonlyRootfs,
				Privileged:         o.Privileged,
				Capabilities:       o.Capabilities,
			},
		},
	}
	if o.Group != 0 {
		cfg.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: o.Group}
	}
	for _, e := range o.Env {
		k, v, _ := strings.Cut(e, "=")
		cfg.Envs = append(cfg.Envs, &cri.KeyValue{Key: k, Value: []byte(v)})
	}
	for _, name := range o.CDIDevices {
		cfg.CDIDevices = append(cfg.CDIDevices, &cri.CDIDevice{Name: name})
	}
	r, err := p.node.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: p.ID, Config: cfg, SandboxConfig: p.cfg})
	if err != nil {
		return nil, fmt.Errorf("create container %q: %w", o.Name, err)
	}
	return &Container{ID: r.GetContainerId(), pod: p, cfg: cfg}, nil
}

// Name returns the container's name in its pod.
func (c *Container) Name() string { return c.cfg.GetMetadata().GetName() }

// Start starts the container. runc gets its config.json here.
func (c *Container) Start(ctx context.Context) error {
	_, err := c.pod.node.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ID})
	if err != nil {
		return fmt.Errorf("start container %q: %w", c.Name(), err)
	}
	return nil
}

// Exec runs a command in the running container. An exit status is not an error.
func (c *Container) Exec(ctx context.Context, cmd ...string) (stdout, stderr string, code int, err error) {
	r, err := c.pod.node.runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c.ID, Cmd: cmd, Timeout: 60})
	if err != nil {
		return "", "", -1, fmt.Errorf("execute %q in container %q: %w", cmd, c.Name(), err)
	}
	return string(r.GetStdout()), string(r.GetStderr()), int(r.GetExitCode()), nil
}

// Status returns the container's state as CRI reports it.
func (c *Container) Status(ctx context.Context) (*cri.ContainerStatus, error) {
	r, err := c.pod.node.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.ID})
	if err != nil {
		return nil, fmt.Errorf("get status of container %q: %w", c.Name(), err)
	}
	return r.GetStatus(), nil
}

// PID returns the process ID of the container's first process, in the jail.
func (c *Container) PID(ctx context.Context) (int, error) {
	var info struct {
		PID int `json:"pid"`
	}
	return info.PID, c.info(ctx, &info)
}

// OCISpec returns the config.json that the OCI runtime got. Before the start, it returns the spec that the
// runtime stores.
func (c *Container) OCISpec(ctx context.Context) (*rspec.Spec, error) {
	spec, err := c.pod.node.bundleSpec(c.ID)
	if !errors.Is(err, fs.ErrNotExist) {
		return spec, err
	}
	var info struct {
		Spec *rspec.Spec `json:"runtimeSpec"`
	}
	return info.Spec, c.info(ctx, &info)
}

// info reads the runtime's verbose information about a container.
func (c *Container) info(ctx context.Context, v any) error {
	r, err := c.pod.node.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.ID, Verbose: true})
	if err != nil {
		return fmt.Errorf("get details of container %q: %w", c.Name(), err)
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["info"]), v); err != nil {
		return fmt.Errorf("get details of container %q: %w", c.Name(), err)
	}
	return nil
}

// bundleSpec reads the config.json of a running container or sandbox.
func (n *Node) bundleSpec(id string) (*rspec.Spec, error) {
	name := filepath.Join(n.daemon.bundle(id), "config.json")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read OCI spec: %w", err)
	}
	spec := new(rspec.Spec)
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("read OCI spec %q: %w", name, err)
	}
	return spec, nil
}

// Logs returns the container's output, of both streams, without CRI's time stamps. With CRI-O it also has the messages of
// runc, which are left out here.
func (c *Container) Logs() (string, error) {
	data, err := os.ReadFile(filepath.Join(c.pod.cfg.GetLogDirectory(), c.cfg.GetLogPath()))
	if err != nil {
		return "", fmt.Errorf("read logs of container %q: %w", c.Name(), err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		// time stamp, stream, F for a full line or P for a part, text
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			text := f[3]
			if c.pod.node.opts.Generation.IsCRIO() && strings.HasPrefix(text, `time="`) && strings.Contains(text, " level=") {
				continue
			}
			if f[2] == "P" {
				text = strings.TrimSuffix(text, "\n")
			}
			out.WriteString(text)
		}
	}
	return out.String(), nil
}

// Stop kills the container.
func (c *Container) Stop(ctx context.Context) error {
	_, err := c.pod.node.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.ID})
	if err != nil {
		return fmt.Errorf("stop container %q: %w", c.Name(), err)
	}
	return nil
}

// Remove kills and removes the container.
func (c *Container) Remove(ctx context.Context) error {
	_, err := c.pod.node.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.ID})
	if err != nil {
		return fmt.Errorf("remove container %q: %w", c.Name(), err)
	}
	return nil
}

// Env returns the value of a variable in a spec, and whether it is set.
func Env(spec *rspec.Spec, name string) (string, bool) {
	i := slices.IndexFunc(spec.Process.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	if i < 0 {
		return "", false
	}
	return strings.TrimPrefix(spec.Process.Env[i], name+"="), true
}
