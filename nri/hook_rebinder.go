// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/internal/deliver/staging"
)

const (
	// rebinderRetry is the time between two attempts to become the rebinder while another process, such as an
	// earlier plugin that ends, has that role.
	rebinderRetry = time.Second
	// sweepTimeout bounds a search for containers that are gone.
	sweepTimeout = 10 * time.Second
)

// hookRebinder rebinds the sockets of containers that the OCI hook serves (of Podman and of runtimes
// without NRI), because a hook has ended by the time a vswitch re-creates its socket. Hooks check that a
// rebinder runs, and bind sockets only then.
type hookRebinder struct {
	*daemon
	store atomic.Pointer[staging.Store] // of the hook's containers; nil while it is not open
}

// run works until the plugin closes. After a failure it retries with a growing interval.
func (r *hookRebinder) run(dir string) {
	active := false
	r.repeat(r.closing, "sockets of containers that the OCI hook serves are not rebound until this succeeds",
		"sockets of containers that the OCI hook serves are rebound again", func(succeeded func()) (time.Duration, error) {
			store := r.store.Load()
			if store == nil {
				opened, err := staging.Open(r.host, dir, staging.Options{
					Owner: staging.HookOwner, Shared: true, NoCreate: true, Watch: true, Events: newStagingEvents(r.daemon)})
				if err != nil {
					return 0, err
				}
				store = opened
				r.store.Store(store)
			}
			if !active {
				var err error
				if active, err = store.BecomeRebinder(); err != nil || !active {
					return rebinderRetry, err
				}
			}
			succeeded()
			// Containers whose creation failed after the hook ran, and containers whose end no hook saw.
			n, err := store.Sweep(staging.MinOrphanAge, sweepTimeout)
			r.reportRemoval(r.log, "the OCI hook's containers that are gone", err)
			if n > 0 {
				r.log.WithField("containers", n).Info("removed the state of the OCI hook's containers that are gone")
			}
			return staging.MinOrphanAge, nil
		})
}
