// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// attachment identifies a port by the owner's fields that every switch stores.
type attachment struct{ containerID, iface string }

func attachmentOf(o vswitch.Owner) attachment { return attachment{o.ContainerID, o.Interface} }

// knownPort is a port as requested in its record, and as reported by the switch when it was last
// ensured.
type knownPort struct{ requested, found vswitch.Port }

// failure is an error about a port or, without a name, about the switch or the records.
type failure struct{ port, text string }

// switchState is the reconciliation of one switch. Only the goroutine of run uses known, orphans,
// responded, failures and retry.
type switchState struct {
	name    string
	driver  vswitch.Watcher
	options *Options
	wake    chan struct{}
	known   map[attachment]knownPort
	orphans map[attachment]time.Time // by the time of discovery
	// responded is the time of the switch's last response. It is zero for a driver that is not a
	// vswitch.Responder.
	responded time.Time
	// failures are the failures of the last pass. Only new ones are reported.
	failures map[failure]bool
	retry    retry.Backoff

	mu     sync.Mutex
	status vswitch.Status
}

// trigger requests a pass. Requests before it begins are one pass.
func (s *switchState) trigger() {
	select {
	case s.wake <- struct{}{}:
	default: // a pass is due already
	}
}

// run runs a pass at the start, after each trigger, again after a failure, and after passInterval.
func (s *switchState) run(ctx context.Context) {
	s.trigger()
	var repeat <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.retry.Reset()
		case <-repeat:
		}
		deadline.Sleep(ctx, settleTime)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-s.wake: // this pass covers the trigger
		default:
		}
		repeat = time.After(min(cmp.Or(s.pass(ctx), passInterval), passInterval))
	}
}

// pass compares the switch with the records once. It returns the time after which it must be
// repeated without a trigger, or zero.
//
// The order matters. An ADD writes the record before it creates the port, and a DEL removes the
// record last. So a port that is listed first and then has no record belongs to no ADD.
func (s *switchState) pass(ctx context.Context) (again time.Duration) {
	p := &passResult{changes: map[Action][]Change{}, failures: map[failure]bool{}}
	defer func() { again = s.finish(p) }()
	listCtx, cancel := context.WithTimeout(ctx, listTimeout)
	listed, err := s.driver.List(listCtx)
	cancel()
	if err != nil {
		s.fail(p, vswitch.Port{}, err)
		return
	}
	if err := s.checkResponding(ctx); err != nil {
		s.fail(p, vswitch.Port{}, err)
		return
	}
	p.answering = true
	store, err := record.Find(s.options.Host, s.options.StateDir)
	if err != nil {
		s.fail(p, vswitch.Port{}, err)
		return
	}
	if store != nil {
		defer store.Close()
	}
	records, recorded, whole := s.readRecords(store, p)
	sandboxes, known := s.options.Sandboxes()
	if !known {
		sandboxes = nil // containers that no runtime reports have ports as well
	}
	found := map[attachment]vswitch.Port{}
	for _, port := range listed {
		found[attachmentOf(port.Owner)] = port
	}
	s.ensureAll(ctx, store, records, found, sandboxes, p)
	if whole && known {
		s.removeOrphans(ctx, found, recorded, sandboxes, p)
	}
	return
}

// checkResponding checks a switch whose list of ports does not prove that it works.
func (s *switchState) checkResponding(ctx context.Context) error {
	responder, ok := s.driver.(vswitch.Responder)
	if !ok || time.Since(s.responded) < respondInterval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	err := responder.CheckResponding(ctx)
	if err == nil {
		s.responded = time.Now()
	}
	return err
}

// passResult is the result of one pass.
type passResult struct {
	answering      bool
	ports, missing int
	errors         int
	firstError     string
	changes        map[Action][]Change
	failures       map[failure]bool
	again          time.Duration // the shortest time to a repeated pass
}

func (p *passResult) repeatAfter(d time.Duration) {
	p.again = min(cmp.Or(p.again, d), d)
}

// fail adds a failure to the result. A failure that the last pass had as well is counted and not reported.
func (s *switchState) fail(p *passResult, port vswitch.Port, err error) {
	now := failure{port.Name, diag.ErrorText(err)}
	if !s.failures[now] {
		p.changes[Failed] = append(p.changes[Failed], Change{port, err})
	}
	p.failures[now] = true
	p.errors++
	p.firstError = cmp.Or(p.firstError, now.text)
}

// finish reports the changes and updates the status.
func (s *switchState) finish(p *passResult) time.Duration {
	for _, action := range []Action{Recreated, Changed, Removed, Failed} {
		changes := p.changes[action]
		if len(changes) == 0 {
			continue
		}
		slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Port.Name, b.Port.Name) })
		s.options.Report(Event{Switch: s.name, Action: action, Changes: changes})
	}
	s.failures = p.failures
	if p.errors > 0 {
		p.repeatAfter(s.retry.NextWait())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.status
	s.status = vswitch.Status{
		Checked: true, Answering: p.answering, Ports: p.ports, Missing: p.missing, Error: p.firstError,
		Recreated: old.Recreated + len(p.changes[Recreated]) + len(p.changes[Changed]),
		Removed:   old.Removed + len(p.changes[Removed]),
		Errors:    old.Errors + p.errors,
	}
	return p.again
}

// readRecords returns the records of this switch, and the attachments with a record for any switch.
// It reports whether all records were read.
func (s *switchState) readRecords(store *record.Store, p *passResult) (records []*record.Record,
	recorded map[attachment]bool, whole bool) {
	recorded = map[attachment]bool{}
	if store == nil {
		return nil, recorded, true
	}
	keys, err := store.Keys()
	if err != nil {
		s.fail(p, vswitch.Port{}, err)
		return nil, recorded, false
	}
	whole = true
	for _, key := range keys {
		recorded[attachment{key.ContainerID, key.Interface}] = true
		record, err := store.Read(key)
		switch {
		case err != nil:
			s.fail(p, vswitch.Port{}, err)
			whole = false
		case record != nil && record.Switch == s.name:
			records = append(records, record)
		}
	}
	return records, recorded, whole
}

// ensureAll ensures missing or different ports of living sandboxes and of containers that no
// runtime reports.
func (s *switchState) ensureAll(ctx context.Context, store *record.Store, records []*record.Record,
	found map[attachment]vswitch.Port, sandboxes map[string]bool, p *passResult) {
	known := map[attachment]knownPort{}
	session := &passSession{driver: s.driver}
	defer session.close()
	slots := make(chan struct{}, maxParallel)
	results := make(chan ensured, len(records))
	var group sync.WaitGroup
	for _, record := range records {
		if !sandboxes[record.ContainerID] && !record.IsRunningUnlisted(s.options.Host) {
			continue // its ADD is running, or the sandbox was removed
		}
		id := attachmentOf(record.Port.Owner)
		port, exists := found[id]
		last, ok := s.known[id]
		if exists && ok && isSamePort(last.requested, *record.Port) && isSamePort(last.found, port) {
			known[id] = last
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			results <- s.ensure(ctx, session, store, record)
			<-slots
		})
	}
	group.Wait()
	close(results)
	for r := range results {
		id := attachmentOf(r.record.Port.Owner)
		before, exists := found[id]
		switch {
		case r.err != nil:
			s.fail(p, *r.record.Port, r.err)
		case r.changing:
			p.repeatAfter(time.Second)
		default:
			known[id] = knownPort{*r.record.Port, *r.port}
			if !exists {
				p.changes[Recreated] = append(p.changes[Recreated], Change{Port: *r.port})
			} else if !isSamePort(before, *r.port) {
				p.changes[Changed] = append(p.changes[Changed], Change{Port: *r.port})
			}
			continue
		}
		// A port that cannot be ensured may be on a wrong bridge, or on none.
		if r.err != nil || !exists || before.Fault != "" {
			p.missing++
		}
	}
	s.known, p.ports = known, len(known)
}

// ensured is the result of ensuring one record's port.
type ensured struct {
	record   *record.Record
	port     *vswitch.Port // as the switch reports it; nil if it was not ensured
	changing bool          // another process is changing it, or has removed or replaced the record
	err      error
}

// ensure ensures the port of a record. It skips a port that another process is changing, and a
// record that was removed or replaced since it was read.
func (s *switchState) ensure(ctx context.Context, session *passSession, store *record.Store,
	record *record.Record) ensured {
	unlock, err := store.LockRecord(record.Key, 0)
	if errdefs.IsConflict(err) || err == nil && unlock == nil {
		return ensured{record: record, changing: true}
	}
	if err != nil {
		return ensured{record: record, err: err}
	}
	defer unlock()
	// A DEL and another ADD may have replaced the record.
	if now, err := store.Read(record.Key); err != nil || !reflect.DeepEqual(now, record) {
		return ensured{record: record, changing: err == nil, err: err}
	}
	driver, err := session.open(ctx)
	if err != nil {
		return ensured{record: record, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	port, err := driver.Ensure(ctx, *record.Port)
	if err != nil {
		return ensured{record: record, err: err}
	}
	return ensured{record: record, port: &port}
}

// removeOrphans removes ports that have lacked both record and sandbox for orphanTime.
func (s *switchState) removeOrphans(ctx context.Context, found map[attachment]vswitch.Port,
	recorded map[attachment]bool, sandboxes map[string]bool, p *passResult) {
	orphans := map[attachment]time.Time{}
	for id, port := range found {
		if id.containerID == "" || recorded[id] || sandboxes[id.containerID] {
			continue
		}
		since, seen := s.orphans[id]
		if !seen {
			since = time.Now()
		}
		if left := orphanTime - time.Since(since); left > 0 {
			orphans[id] = since
			p.repeatAfter(left)
			continue
		}
		removeCtx, cancel := context.WithTimeout(ctx, changeTimeout)
		err := s.driver.Remove(removeCtx, port.Owner)
		cancel()
		if err != nil {
			orphans[id] = since
			s.fail(p, port, err)
			continue
		}
		p.changes[Removed] = append(p.changes[Removed], Change{Port: port})
	}
	s.orphans = orphans
}

// isSamePort compares the owner's fields that every switch stores, and all other fields.
func isSamePort(a, b vswitch.Port) bool {
	reduce := func(p vswitch.Port) vswitch.Port {
		p.Owner = vswitch.Owner{ContainerID: p.Owner.ContainerID, Interface: p.Owner.Interface}
		if len(p.Addresses) == 0 {
			p.Addresses = nil
		}
		return p
	}
	return reflect.DeepEqual(reduce(a), reduce(b))
}
