// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// sweepTimeout bounds the delay of a container's start or end by the removal of leftovers, which
// runs at most once in [staging.MinOrphanAge].
const sweepTimeout = 300 * time.Millisecond

// shouldStage reports whether the container's sockets are bound in its staging directory. Staging
// needs the NRI plugin of this node, which rebinds sockets that the host re-creates. Without the
// plugin, the container receives the socket's own directory, in which the new socket appears.
// seesLaterMounts is set if later mounts of the host propagate to the container. reason explains
// why sockets are not staged.
func (h *hook) shouldStage(containerID string, seesLaterMounts bool) (staged bool, reason string) {
	mode := staging.Mode(h.cfg.Sockets.Staging)
	switch {
	case mode == staging.ModeDirectory:
		return false, ""
	case !seesLaterMounts:
		return false, "the runtime cuts the container's mounts off from the host's; set linux.rootfsPropagation to " +
			"\"rslave\" in its configuration, as precreate does"
	case mode == staging.ModeMount:
		return true, ""
	}
	if staging.RebinderRunning(h.host, h.cfg.StateDir) || staging.IsReady(h.host, h.cfg.StateDir, containerID) {
		return true, ""
	}
	return false, "no jackfield-nri runs on this node to rebind them"
}

// seesLaterMounts reports whether later mounts of the host propagate into a mount that the
// container received before its root was pivoted. The configuration can set the propagation. runc
// propagates by default, crun makes all mounts private, and for other runtimes it is unknown.
func seesLaterMounts(spec *rspec.Spec) bool {
	if l := spec.Linux; l != nil && l.RootfsPropagation != "" {
		return slices.Contains([]string{"slave", "rslave", "shared", "rshared"}, l.RootfsPropagation)
	}
	comm, err := hostfs.Host().ReadFile("/proc/"+strconv.Itoa(os.Getppid())+"/comm", 64)
	return err == nil && strings.TrimSpace(string(comm)) == "runc"
}

// openStore opens the state of the hook's containers.
func (h *hook) openStore(staged bool) (err error) {
	opts := staging.Options{Mode: staging.ModeDirectory, Owner: staging.HookOwner, Shared: true,
		DirectorySize: h.cfg.Sockets.DirectoryBytes()}
	if staged {
		opts.Mode = staging.Mode(h.cfg.Sockets.Staging)
	}
	h.store, err = staging.Open(h.host, h.cfg.StateDir, opts)
	return err
}

// prepareStaging creates the container's objects on the host.
func (h *hook) prepareStaging(c *edit.Container) error {
	if c == nil {
		return nil
	}
	if h.store.Status().Mode == staging.ModeMount && !staging.RebinderRunning(h.host, h.cfg.StateDir) {
		h.logLine("warning", "sockets.staging is mount, but no jackfield-nri runs on this node: sockets that the "+
			"host re-creates are rebound when it starts")
	}
	if err := h.store.Prepare(*c); err != nil {
		return err
	}
	h.sweepOrphans(h.store)
	return nil
}

// removeStaging removes the objects of a container. The objects of a pod's sandbox are removed
// together with the sandbox's own container.
func (h *hook) removeStaging(sandbox, id string) error {
	store, err := staging.Open(h.host, h.cfg.StateDir,
		staging.Options{Owner: staging.HookOwner, Shared: true, NoCreate: true})
	if err != nil {
		return err
	}
	err = store.RemoveContainer(sandbox, id)
	if sandbox == id {
		err = errors.Join(err, store.RemoveSandbox(sandbox))
	}
	h.sweepOrphans(store)
	return errors.Join(err, store.UnmountIfEmpty())
}

// sweepOrphans removes leftovers of containers whose creation failed after the hook, or whose end
// was not reported. It only logs a failure, because that concerns other containers.
func (h *hook) sweepOrphans(store *staging.Store) {
	n, err := store.SweepIfDue(sweepTimeout)
	if err != nil {
		h.logLine("warning", diag.ErrorText(err))
	}
	if n > 0 {
		h.logLine("info", fmt.Sprintf("removed leftovers of %d containers and sandboxes", n))
	}
}
