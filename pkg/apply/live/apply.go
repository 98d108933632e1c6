// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Target is a container that has its namespaces and has not pivoted into its root.
type Target struct {
	// Pid is the container's first process, in this process's PID namespace.
	Pid int
	// Root is the absolute path of the container's root file system in the mount
	// namespace of Pid: root.path of its config.json.
	Root string
}

// Options change how Apply works. The zero value is right in every process.
type Options struct {
	// Stranded, when it is not nil, has the calling thread itself enter the container's
	// mount namespace and come back, instead of one that is made for it and thrown
	// away: for a process that does little else, in which that one is what takes the
	// time. The process has to be in the host's user namespace; in another one it
	// may be free to enter and not to come back.
	//
	// Should the thread not come back, Apply does not return. Stranded is called then,
	// by a thread that was never away, and is to end the process.
	Stranded func(error)
}

// Apply makes the mounts and device nodes of the set in the container, and opens its
// device cgroup. What [TooLate] lists is left out. After an error the container
// has some of the edits, or none, and must not be started.
//
// Mounts come from descriptors that were opened on the host; device nodes are
// those of the host, bound, or new ones where the set says another mode or owner
// than the host's node has and no user namespace keeps them from being made.
func Apply(host hostfs.Root, t Target, set *edits.Set, opts Options) error {
	if len(set.Mounts)+len(set.Devices) == 0 {
		return nil
	}
	c, err := open(t, opts)
	if err != nil {
		return err
	}
	defer c.close()
	jobs, err := c.jobs(host, set)
	defer func() {
		for i := range jobs {
			jobs[i].close()
		}
	}()
	if err != nil {
		return err
	}
	// A rule without its node opens nothing, a node without its rule looks broken.
	if err := allow(t.Pid, set.Devices); err != nil {
		return err
	}
	return c.inside(func(root int) error {
		for i := range jobs {
			if err := jobs[i].do(root); err != nil {
				return fmt.Errorf("%s: put %s into the container: %w", jobs[i].origin, jobs[i].what, err)
			}
		}
		return nil
	})
}

// jobs opens all that comes from the host. They are to be closed after an error,
// too.
func (c *container) jobs(host hostfs.Root, set *edits.Set) ([]job, error) {
	if len(set.Devices) > 0 {
		apart, err := c.userNS()
		if err != nil {
			return nil, err
		}
		c.bound = apart || rootless()
	}
	jobs := make([]job, 0, len(set.Devices)+len(set.Mounts))
	for i := range set.Devices {
		j, err := c.deviceJob(host, &set.Devices[i])
		if err != nil {
			return jobs, fmt.Errorf("%s: device node %q: %w", set.Devices[i].Origin, set.Devices[i].Path, err)
		}
		jobs = append(jobs, j)
	}
	for i := range set.Mounts {
		j, err := c.mountJob(host, &set.Mounts[i])
		if err != nil {
			return jobs, fmt.Errorf("%s: mount %q: %w", set.Mounts[i].Origin, set.Mounts[i].Destination, err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// Late is an edit that a container can no longer be given.
type Late struct {
	What   string // such as `variable "A"`
	Origin edits.Origin
}

// TooLate lists what a container that exists can no longer be given: variables,
// hooks, groups, network devices and RDT. Its own variables, of edits.View, are not
// among them: they say what devices.json says, which is at a fixed path.
func TooLate(set *edits.Set) []Late {
	var late []Late
	for i := range set.Env {
		if e := &set.Env[i]; e.Origin.Source != edits.View {
			late = append(late, Late{fmt.Sprintf("variable %q", e.Name), e.Origin})
		}
	}
	for i := range set.Hooks {
		h := &set.Hooks[i]
		late = append(late, Late{fmt.Sprintf("%s hook %q", h.Stage, h.Path), h.Origin})
	}
	for i := range set.NetDevices {
		n := &set.NetDevices[i]
		late = append(late, Late{fmt.Sprintf("network device %q", n.HostName), n.Origin})
	}
	for i := range set.GIDs {
		g := &set.GIDs[i]
		late = append(late, Late{fmt.Sprintf("additional group %d", g.ID), g.Origin})
	}
	if set.RDT != nil {
		late = append(late, Late{"Intel RDT configuration", set.RDT.Origin})
	}
	return late
}

// Error is the edit as what fails a container. It unwraps to
// errdefs.ErrNotImplemented.
func (l Late) Error() string {
	return fmt.Sprintf("%s: %s comes too late: the container's configuration is read already", l.Origin, l.What)
}

// Unwrap makes it an errdefs.ErrNotImplemented.
func (l Late) Unwrap() error { return errdefs.ErrNotImplemented }

// JoinLate is one error of many, nil of none.
func JoinLate(late []Late) error {
	errs := make([]error, len(late))
	for i, l := range late {
		errs[i] = l
	}
	return errors.Join(errs...)
}
