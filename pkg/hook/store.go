// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
)

// sweepPatience is how long a container's beginning or end is kept waiting for what
// others left behind, once in [staging.Settled].
const sweepPatience = 300 * time.Millisecond

// staged reports whether the container's sockets are to be bound in its staging
// directory. That is of use where somebody binds them anew, when the host side makes
// them anew: the NRI plugin of this node, while it runs. Without it a socket's own
// directory is the better thing to hand over, in which the new one is found. follows
// says that what is mounted on the host later is seen in the container at all. reason
// says why it is the directory.
func (h *hook) staged(containerID string, follows func() bool) (staged bool, reason string) {
	mode := staging.Mode(h.cfg.Sockets.Staging)
	switch {
	case mode == staging.Directories:
		return false, ""
	case !follows():
		return false, "the runtime cuts the container's mounts off from the host's; linux.rootfsPropagation \"rslave\" of its configuration would not, and precreate sets that"
	case mode == staging.Mounts:
		return true, ""
	}
	if staging.Kept(h.host, h.cfg.StateDir) || staging.Announced(h.host, h.cfg.StateDir, containerID) {
		return true, ""
	}
	return false, "no jackfield-nri is running here that would bind them anew"
}

// follows reports whether what is mounted on the host, in a mount that a container was
// given before its root was pivoted, is seen in it later: where its configuration says
// so, and with runc, for which that is the default. crun makes everything private,
// and of others it is not known.
func follows(spec *rspec.Spec) bool {
	if spec.Linux != nil {
		switch spec.Linux.RootfsPropagation {
		case "slave", "rslave", "shared", "rshared":
			return true
		case "":
		default:
			return false
		}
	}
	comm, err := hostfs.Host().ReadFile("/proc/"+strconv.Itoa(os.Getppid())+"/comm", 64)
	return err == nil && strings.TrimSpace(string(comm)) == "runc"
}

// open opens what is kept on the host for containers of the hook's.
func (h *hook) open(staged bool) (err error) {
	opts := staging.Options{Mode: staging.Directories, Owner: staging.HookOwner, Shared: true, DirectorySize: h.cfg.Sockets.DirectoryBytes()}
	if staged {
		if opts.Mode = staging.Mode(h.cfg.Sockets.Staging); opts.Mode == "" {
			opts.Mode = staging.Auto
		}
	}
	h.store, err = staging.Open(h.host, h.cfg.StateDir, opts)
	return err
}

// prepare makes what the container needs on the host.
func (h *hook) prepare(c *staging.Container) error {
	if c == nil {
		return nil
	}
	if h.store.Status().Mode == staging.Mounts && !staging.Kept(h.host, h.cfg.StateDir) {
		h.log.say("warning", h.stage, h.name, "sockets.staging is mount, and no jackfield-nri is running here: a socket that the host side makes anew is bound when it runs again")
	}
	if err := h.store.Prepare(*c); err != nil {
		return err
	}
	h.sweep(h.store)
	return nil
}

// remove removes what was made for a container; what belongs to its sandbox goes
// with the sandbox's own container, or with the container that is its own sandbox.
func (h *hook) remove(sandbox, id string) error {
	store, err := staging.Open(h.host, h.cfg.StateDir, staging.Options{Owner: staging.HookOwner, Shared: true, Present: true})
	if err != nil {
		return err
	}
	err = store.RemoveContainer(sandbox, id)
	if sandbox == id {
		err = errors.Join(err, store.RemoveSandbox(sandbox))
	}
	h.sweep(store)
	return errors.Join(err, store.Tidy())
}

// sweep removes what is left of containers whose creation failed after the hook, or
// whose end nobody told. No other container suffers from its failing.
func (h *hook) sweep(store *staging.Store) {
	n, err := store.SweepNowAndThen(sweepPatience)
	if err != nil {
		h.log.say("warning", h.stage, h.name, err.Error())
	}
	if n > 0 {
		h.log.say("info", h.stage, h.name, fmt.Sprintf("removed what was left of %d containers and sandboxes that are gone", n))
	}
}
