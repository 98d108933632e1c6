// SPDX-License-Identifier: Apache-2.0

package staging

import "time"

const (
	// MinOrphanAge is the age at which a recorded container can be an orphan. A runtime has
	// created the container long before.
	MinOrphanAge = 10 * time.Minute

	lastSweepFile = "swept"
	// Limits of one search: records, processes, and bytes of one mount table.
	maxOrphans    = 4096
	maxProcesses  = 100000
	maxMountTable = 64 << 20
)

// Orphan is a container or sandbox that has state here and does not exist any more.
type Orphan struct {
	Sandbox    string
	Container  string // "" for a sandbox without recorded containers
	modified   time.Time
	recordedAt int64 // in seconds since 1970
}

func (l Orphan) isContainer() bool { return l.Container != "" }
