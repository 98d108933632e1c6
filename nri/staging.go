// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/staging"
)

// openStore opens the state directory, to stage sockets as the configuration says.
func (p *Plugin) openStore(cfg *config.Config) (*staging.Store, error) {
	store, err := staging.Open(p.opts.Host, cfg.StateDir, staging.Options{Mode: staging.Mode(cfg.Sockets.Staging), Watch: true, DirectorySize: cfg.Sockets.DirectoryBytes(), Events: stagingEvents{p}})
	if err != nil {
		return nil, err
	}
	if st := store.Status(); st.Mode == staging.Directories {
		p.log.WithField("reason", st.Reason).Warn("sockets are delivered as plain directory mounts: one that the host side makes in a directory " +
			"it replaces, or that the policy does not grant as a whole (DIR/**), is lost to running containers when it is re-created, and networks cannot be added to them")
	}
	// By itself: a socket root that hangs does not hold up the start.
	go p.warnOfRootMounts(cfg)
	return store, nil
}

// warnOfRootMounts logs what is risky about how socket roots are mounted.
func (p *Plugin) warnOfRootMounts(cfg *config.Config) {
	for _, risk := range staging.CheckRootMounts(p.opts.Host, cfg.StateDir, cfg.Sockets.Roots, cfg.Sockets.DirectoryBytes() > 0) {
		p.log.WithField("roots", risk.Roots).WithField("remedy", risk.Remedy).Warn(risk.Found)
	}
}

// stagingEvents counts and logs what the store does by itself.
type stagingEvents struct{ p *Plugin }

func (e stagingEvents) Rebound(r staging.Rebound) {
	e.p.counters.Rebinds.Add()
	if r.Quiet {
		return
	}
	e.p.later.do(func() {
		e.p.log.WithField("socket", r.Socket).WithField("containers", r.Containers).WithField("took", r.Took.String()).
			Info("the host side made the socket anew, and the containers have it")
	})
}

func (e stagingEvents) Failed(err error) {
	e.p.counters.StagingFailed.Add()
	e.p.later.do(func() { e.p.log.WithError(err).Warn("sockets of running containers") })
}
