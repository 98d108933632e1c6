// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"maps"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/report/status"
)

// recordDelay is how long a record waits for others, and for creations under way, which the writing of files
// slows down. A plugin that is killed in between loses the record.
const recordDelay = 200 * time.Millisecond

// statusRecords keeps the status records of containers in the state directory, for the next process. Its own
// goroutine writes them, so that a directory that hangs costs records and delays no container.
type statusRecords struct {
	*daemon
	containers *containerTable

	mu       sync.Mutex                   // also serializes the writers
	stateDir string                       // "" before the first configuration
	written  map[string]*status.Container // by container ID
}

// newStatusRecords returns records that are written after each wakeup of changed.
func newStatusRecords(d *daemon, containers *containerTable, changed wakeup) *statusRecords {
	r := &statusRecords{daemon: d, containers: containers}
	d.runOn(changed, 0, r.write)
	return r
}

// read reads the records that an earlier process wrote into the table.
func (r *statusRecords) read(stateDir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stateDir = stateDir
	began := time.Now()
	files, err := status.OpenRecords(r.host, stateDir)
	if err != nil {
		r.reportLost(err)
		return
	}
	found, err := files.Read()
	r.reportLost(err)
	r.written = make(map[string]*status.Container, len(found))
	for i := range found {
		r.written[found[i].ContainerID] = &found[i]
	}
	r.containers.setRecorded(r.written)
	r.log.WithField("records", len(found)).WithField("took", time.Since(began).String()).Debug("status records read")
}

// write syncs the records in the state directory to the table. A record that cannot be written is lost.
func (r *statusRecords) write() {
	deadline.Sleep(r.closing, recordDelay)
	r.mu.Lock()
	defer r.mu.Unlock()
	records := r.containers.allRecords()
	if r.stateDir == "" || maps.Equal(records, r.written) {
		return
	}
	files, err := status.OpenRecords(r.host, r.stateDir)
	if err != nil {
		r.reportLost(err)
		return
	}
	for id, record := range records {
		if r.written[id] != record {
			r.reportLost(files.Write(record))
		}
	}
	for id := range r.written {
		if records[id] == nil {
			r.reportLost(files.Remove(id))
		}
	}
	r.written = records
}

// reportLost counts and logs an error; nil is none.
func (r *statusRecords) reportLost(err error) {
	if err != nil {
		r.counters.StatusFailed.Add(1)
		r.log.WithError(err).Warn("jackfield status may lose some containers after a restart")
	}
}
