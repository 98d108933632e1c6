// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// Pod is a pod's sandbox. Its methods fail the test on errors.
type Pod struct {
	*node.Pod
	h    *H
	gone bool
}

// Container is a container. Its methods fail the test on errors.
type Container struct {
	*node.Container
	pod *Pod
}

// RunPod runs a pod's sandbox. When the test ends, the sandbox and its containers are removed. If a failure
// is expected, use h.Node.RunPod.
func (h *H) RunPod(o node.PodOptions) *Pod {
	h.t.Helper()
	p, err := h.Node.RunPod(h.t.Context(), o)
	if err != nil {
		h.t.Fatal(err)
	}
	pod := &Pod{Pod: p, h: h}
	h.t.Cleanup(func() {
		if pod.gone {
			return
		}
		if err := p.Remove(context.WithoutCancel(h.t.Context())); err != nil {
			h.t.Errorf("clean up: %v", err)
		}
	})
	return pod
}

// Remove stops and removes the pod.
func (p *Pod) Remove() {
	p.h.t.Helper()
	if err := p.Pod.Remove(p.h.t.Context()); err != nil {
		p.h.t.Fatal(err)
	}
	p.gone = true
}

// OCISpec returns the sandbox's config.json, as runc got it.
func (p *Pod) OCISpec() *rspec.Spec {
	p.h.t.Helper()
	spec, err := p.Pod.OCISpec()
	if err != nil {
		p.h.t.Fatal(err)
	}
	return spec
}

// Create creates a container without starting it.
func (p *Pod) Create(o node.ContainerOptions) *Container {
	p.h.t.Helper()
	c, err := p.TryCreate(p.h.t.Context(), o)
	if err != nil {
		p.h.t.Fatal(err)
	}
	return &Container{Container: c, pod: p}
}

// TryCreate is Create for tests that check the error. A container that times out on a busy machine
// is created again, as the kubelet does.
func (p *Pod) TryCreate(ctx context.Context, o node.ContainerOptions) (*node.Container, error) {
	p.h.t.Helper()
	c, err := p.Pod.Create(ctx, o)
	for end := time.Now().Add(node.Patience); TooLate(err) && time.Now().Before(end); {
		p.h.t.Logf("container %q is created again: %v", o.Name, err)
		o.Attempt++
		c, err = p.Pod.Create(ctx, o)
	}
	return c, err
}

// TooLate reports whether a container was refused because the kubelet or the node exceeded the plugin's time
// limit. Another attempt may succeed.
func TooLate(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "no answer") || strings.Contains(err.Error(), "given up before the runtime's deadline"))
}

// CreateFails creates a container that must be refused. It returns the error that the kubelet would see.
func (p *Pod) CreateFails(o node.ContainerOptions) error {
	p.h.t.Helper()
	if _, err := p.Pod.Create(p.h.t.Context(), o); err != nil {
		return err
	}
	p.h.t.Fatalf("container %q was created, want a refusal", o.Name)
	return nil
}

// Run creates and starts a container.
func (p *Pod) Run(o node.ContainerOptions) *Container {
	p.h.t.Helper()
	c := p.Create(o)
	c.Start()
	return c
}

// Start starts the container.
func (c *Container) Start() {
	c.pod.h.t.Helper()
	if err := c.Container.Start(c.pod.h.t.Context()); err != nil {
		c.pod.h.t.Fatal(err)
	}
}

// Exec runs a command in the container. It returns the command's output and exit status.
func (c *Container) Exec(cmd ...string) (stdout, stderr string, code int) {
	c.pod.h.t.Helper()
	stdout, stderr, code, err := c.Container.Exec(c.pod.h.t.Context(), cmd...)
	if err != nil {
		c.pod.h.t.Fatal(err)
	}
	return stdout, stderr, code
}

// Output runs a command that must succeed. It returns the command's output without the last newline.
func (c *Container) Output(cmd ...string) string {
	c.pod.h.t.Helper()
	stdout, stderr, code := c.Exec(cmd...)
	if code != 0 {
		c.pod.h.t.Fatalf("%q in container %q: status %d\n%s%s", cmd, c.Name(), code, stdout, stderr)
	}
	return strings.TrimSuffix(stdout, "\n")
}

// OCISpec returns the config.json that the OCI runtime got. Before the start it returns the spec that containerd stores.
func (c *Container) OCISpec() *rspec.Spec {
	c.pod.h.t.Helper()
	spec, err := c.Container.OCISpec(c.pod.h.t.Context())
	if err != nil {
		c.pod.h.t.Fatal(err)
	}
	return spec
}

// ComparableSpec returns the container's OCI spec as JSON, with placeholders for all values that differ
// between pods. It is equal for containers with equal requests.
func (c *Container) ComparableSpec() string {
	c.pod.h.t.Helper()
	data, err := json.MarshalIndent(c.OCISpec(), "", "  ")
	if err != nil {
		c.pod.h.t.Fatal(err)
	}
	text := strings.NewReplacer(c.ID, "CONTAINER", c.pod.ID, "SANDBOX", c.pod.UID(), "POD").Replace(string(data))
	text = regexp.MustCompile(`/proc/\d+/ns/`).ReplaceAllString(text, "/proc/PID/ns/")
	// CRI-O's layer and namespaces of the pod, and two of its annotations.
	text = regexp.MustCompile(`/overlay/[0-9a-f]{64}/`).ReplaceAllString(text, "/overlay/LAYER/")
	text = regexp.MustCompile(`ns/[0-9a-f]{8}-[0-9a-f-]{27}"`).ReplaceAllString(text, `ns/UUID"`)
	return regexp.MustCompile(`(io\.kubernetes\.cri-o\.(Created|IP\.0)": )".*"`).ReplaceAllString(text, `$1"VALUE"`)
}

// Logs returns what the container printed.
func (c *Container) Logs() string {
	c.pod.h.t.Helper()
	text, err := c.Container.Logs()
	if err != nil {
		c.pod.h.t.Fatal(err)
	}
	return text
}

// WaitLogs waits until the container has printed a text.
func (c *Container) WaitLogs(text string) {
	c.pod.h.t.Helper()
	c.pod.h.Eventually(func() error {
		if logs := c.Logs(); !strings.Contains(logs, text) {
			return fmt.Errorf("container %q has not printed %q: %q", c.Name(), text, logs)
		}
		return nil
	})
}

// PID returns the process ID of the container's first process.
func (c *Container) PID() int {
	c.pod.h.t.Helper()
	pid, err := c.Container.PID(c.pod.h.t.Context())
	if err != nil || pid <= 0 {
		c.pod.h.t.Fatalf("get process of container %q: %d, %v", c.Name(), pid, err)
	}
	return pid
}

// Stop kills the container.
func (c *Container) Stop() {
	c.pod.h.t.Helper()
	if err := c.Container.Stop(c.pod.h.t.Context()); err != nil {
		c.pod.h.t.Fatal(err)
	}
}

// Remove kills and removes the container.
func (c *Container) Remove() {
	c.pod.h.t.Helper()
	if err := c.Container.Remove(c.pod.h.t.Context()); err != nil {
		c.pod.h.t.Fatal(err)
	}
}
