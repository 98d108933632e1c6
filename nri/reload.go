// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
)

const (
	// settle is how long a directory has to be quiet before the file is read, and
	// settleMost how long a busy one is waited for.
	settle, settleMost = 50 * time.Millisecond, time.Second
	// lookAgain is for what nobody announces: a file behind a symlink of its own,
	// a directory that was replaced or is not there yet, a remote file system.
	lookAgain = 5 * time.Second
	// grace is longer than any request runs that began under the configuration
	// before.
	grace = time.Minute
	// mostRetired is how many configurations wait for that: of more the oldest go as
	// soon as the runtime has the answers that were worked out under them.
	mostRetired = 8
)

// ConfigStatus says which configuration is in force.
type ConfigStatus struct {
	// Source is its file, "" for the defaults.
	Source string
	// Generation counts from 1, and grows with each configuration put into force.
	Generation uint64
	// Since is when the present one was.
	Since time.Time
	// LastError is why the newest file is not in force, nil when it is; FailedAt
	// is when it was found, Failures how often that happened.
	LastError error
	FailedAt  time.Time
	Failures  uint64
}

// reloading is the part of a Plugin that changes its configuration.
type reloading struct {
	generation  atomic.Uint64
	configFault atomic.Pointer[error] // why the newest configuration is not in force
	failures    atomic.Uint64
	handedOver  atomic.Bool // the runtime gave the configuration: the file does not count

	changing sync.Mutex // one change at a time
	copying  sync.Mutex // one copy at a time
	status   struct {
		sync.Mutex
		source          string
		since, failedAt time.Time
	}
	retired struct {
		sync.Mutex
		cores map[*core]retirement
	}
	stopWatch context.CancelFunc
	watched   sync.WaitGroup
}

// retirement is when a configuration went out of force, and what closes it.
type retirement struct {
	at    time.Time
	timer *time.Timer
}

// ConfigStatus says which configuration is in force, and why a newer one is not.
func (p *Plugin) ConfigStatus() ConfigStatus {
	s := ConfigStatus{Generation: p.generation.Load(), Failures: p.failures.Load()}
	if fault := p.configFault.Load(); fault != nil {
		s.LastError = *fault
	}
	p.status.Lock()
	defer p.status.Unlock()
	s.Source, s.Since = p.status.source, p.status.since
	if s.LastError != nil {
		s.FailedAt = p.status.failedAt
	}
	return s
}

// keepsStore refuses a configuration that would leave living containers without
// what is kept for them.
func keepsStore(present, cfg *config.Config) error {
	if dir := present.StateDir; dir != cfg.StateDir {
		return fmt.Errorf("%s: stateDir: found %q, and %q is in use by living containers; restart jackfield-nri to change it: %w",
			cfg.Position("stateDir"), cfg.StateDir, dir, errdefs.ErrFailedPrecondition)
	}
	if staged := present.Sockets.Staging; staged != cfg.Sockets.Staging {
		return fmt.Errorf("%s: sockets.staging: found %q, and living containers have their sockets by %q; restart jackfield-nri to change it: %w",
			cfg.Position("sockets.staging"), cfg.Sockets.Staging, staged, errdefs.ErrFailedPrecondition)
	}
	if size := present.Sockets.DirectorySize; size != cfg.Sockets.DirectorySize {
		return fmt.Errorf("%s: sockets.directorySize: found %q, and %q is in force; restart jackfield-nri to change it: %w",
			cfg.Position("sockets.directorySize"), cfg.Sockets.DirectorySize, size, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// storeFor is the store for a configuration: the present one, in which containers
// live, unless it is another, which it can only be before the first registration,
// where the runtime hands over its own. It is nil while the state directory does not
// answer.
func (p *Plugin) storeFor(cfg *config.Config, w waits) (*staging.Store, error) {
	if c := p.core.Load(); c != nil && keepsStore(c.cfg, cfg) == nil {
		return c.store, nil
	}
	return p.openInTime(cfg, w)
}

// inForce notes that a configuration was put into force, and retires the one
// before: requests that began under it end under it.
func (p *Plugin) inForce(cfg *config.Config, old *core) {
	// Whoever sees the new generation sees all of it.
	defer p.generation.Add(1)
	p.configFault.Store(nil)
	p.status.Lock()
	p.status.source, p.status.since = cfg.File(), time.Now()
	p.status.Unlock()
	if old != nil {
		p.retire(old)
	}
}

// retire has a configuration that is out of force closed in good time.
func (p *Plugin) retire(old *core) {
	p.retired.Lock()
	defer p.retired.Unlock()
	if p.retired.cores == nil {
		p.retired.cores = make(map[*core]retirement)
	}
	p.retired.cores[old] = retirement{time.Now(), time.AfterFunc(grace, func() { p.closeCore(old) })}
	if len(p.retired.cores) > mostRetired {
		p.retireEarly()
	}
}

// retireEarly has the oldest of the configurations that wait closed, all but so many,
// once the runtime's time for a request has gone by. The lock is held.
func (p *Plugin) retireEarly() {
	waiting := slices.SortedFunc(maps.Values(p.retired.cores), func(a, b retirement) int { return a.at.Compare(b.at) })
	for _, r := range waiting[:len(waiting)-mostRetired] {
		r.timer.Reset(max(0, p.requestTimeout()-time.Since(r.at)))
	}
}

// closeCore closes a configuration that waits, unless somebody else does.
func (p *Plugin) closeCore(old *core) {
	p.retired.Lock()
	_, mine := p.retired.cores[old]
	delete(p.retired.cores, old)
	p.retired.Unlock()
	if !mine {
		return
	}
	if err := old.engine.Close(); err != nil {
		p.log.WithError(err).Warn("close what the configuration before watched")
	}
}

// closeRetired ends the watching, and closes what still waits for its time.
func (p *Plugin) closeRetired() error {
	if p.stopWatch != nil {
		p.stopWatch()
		ended := make(chan struct{})
		go func() {
			p.watched.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(settleMost):
			// It hangs on the file system, and ends with the process.
		}
	}
	p.retired.Lock()
	cores := p.retired.cores
	p.retired.cores = nil
	p.retired.Unlock()
	var errs []error
	for c, r := range cores {
		r.timer.Stop()
		errs = append(errs, c.engine.Close())
	}
	return errors.Join(errs...)
}

// watchConfig reads the configuration file again whenever it changes.
func (p *Plugin) watchConfig() {
	if p.opts.ConfigFile == "" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stopWatch = cancel
	w := &configWatch{host: p.opts.ConfigHost, file: p.opts.ConfigFile}
	p.watched.Go(func() {
		w.run(ctx, func() { p.reload(w) })
	})
}

// reload puts a changed file into force, or says why not and keeps what is.
func (p *Plugin) reload(w *configWatch) {
	if p.handedOver.Load() {
		return
	}
	id := w.identity()
	if id == w.last {
		return
	}
	w.last = id
	log := p.log.WithField("file", w.file)
	present := p.core.Load().cfg
	var cfg *config.Config
	data, err := config.ReadOwned(w.host, w.file)
	if err == nil {
		cfg, err = config.Parse(data, w.file)
	}
	if err == nil && reflect.DeepEqual(cfg, present) {
		// Touched, or put right again.
		if p.configFault.Swap(nil) != nil {
			log.WithField("generation", p.generation.Load()).Info("the configuration file is what is in force again")
		}
		return
	}
	if err == nil {
		err = keepsStore(present, cfg)
	}
	if err == nil {
		err = p.use(cfg)
	}
	if err != nil {
		p.refuseConfig(err)
		return
	}
	p.copyConfig(data)
	if is, was := cfg.Validate, present.Validate; (is.Devices || is.Mounts) != (was.Devices || was.Mounts) {
		log.Warn("validate is switched on or off when the plugin registers next: restart jackfield-nri")
	}
	log.WithField("generation", p.generation.Load()).Info("new configuration in force")
}

// refuseConfig notes and logs why the configuration file is not in force. Before any file
// came into force, the copy of the last good one is.
func (p *Plugin) refuseConfig(err error) {
	message := "new configuration rejected; keeping the current one"
	if p.opts.ConfigFault != nil && p.generation.Load() == 1 {
		message = "configuration rejected; keeping the last good one"
		err = fmt.Errorf("%w (in force is the last good configuration, of which %s is the copy)", err, p.opts.ConfigCopy)
		if was := p.configFault.Load(); was != nil && (*was).Error() == err.Error() {
			return // the watch's first look at the file
		}
	}
	p.failures.Add(1)
	p.status.Lock()
	p.status.failedAt = time.Now()
	p.status.Unlock()
	p.configFault.Store(&err)
	p.log.WithError(err).WithField("file", p.opts.ConfigFile).WithField("generation", p.generation.Load()).Error(message)
}

// copyConfig keeps a configuration file that came into force for a start at which the
// file is faulty. The copy's directory may hang: then the copy is written when it answers.
func (p *Plugin) copyConfig(data []byte) {
	if p.opts.ConfigCopy == "" {
		return
	}
	newWaits().do(func() {
		p.copying.Lock()
		defer p.copying.Unlock()
		if err := config.WriteCopy(p.opts.Host, p.opts.ConfigCopy, p.opts.ConfigFile, data); err != nil {
			p.log.WithError(err).Warn("the configuration cannot be kept for a start at which the file is faulty")
		}
	})
}

// configWatch notices that a file changed: by what happens in its directory,
// which is where a ConfigMap's symlink is swapped, too, and by looking now and
// then.
type configWatch struct {
	host hostfs.Root
	file string
	last fileIdentity
}

// fileIdentity tells one content of a file from another. The zero value is a file
// that cannot be opened.
type fileIdentity struct {
	dev, ino, mode   uint64
	size             int64
	changed, written unix.Timespec
}

func (w *configWatch) identity() fileIdentity {
	f, err := w.host.Open(w.file, unix.O_PATH)
	if err != nil {
		return fileIdentity{}
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return fileIdentity{}
	}
	return fileIdentity{uint64(st.Dev), st.Ino, uint64(st.Mode), st.Size, st.Ctim, st.Mtim}
}

func (w *configWatch) run(ctx context.Context, look func()) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for ctx.Err() == nil {
		w.watch(ctx, tick.C, look)
	}
}

// watch is one life of an inotify descriptor: it returns when the directory is
// gone, and at each tick, so that a directory in its place is found.
func (w *configWatch) watch(ctx context.Context, tick <-chan time.Time, look func()) {
	events := make(chan bool) // false when the watch ended
	stop := make(chan struct{})
	defer close(stop)
	f, err := w.open()
	if err == nil {
		defer f.Close()
		go readEvents(f, path.Base(w.file), events, stop)
	}
	// What happened before the watch was there.
	look()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			look()
			return
		case more := <-events:
			w.quiet(ctx, events)
			if !more {
				// The directory is gone: the one in its place is watched, or waited for.
				return
			}
			look()
		}
	}
}

// quiet waits until the directory is.
func (w *configWatch) quiet(ctx context.Context, events <-chan bool) {
	end := time.After(settleMost)
	for {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-time.After(settle):
			return
		case more := <-events: // nil once the watch ended
			if !more {
				events = nil
			}
		}
	}
}

const configMask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE | unix.IN_DELETE |
	unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

func (w *configWatch) open() (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, w.host.Path(path.Dir(w.file)), configMask); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}

// dataLink is the symlink through which the kubelet swaps a whole ConfigMap.
const dataLink = "..data"

// readEvents passes on what concerns the file, until the descriptor is closed or
// the directory is gone.
func readEvents(f *os.File, base string, events chan<- bool, stop <-chan struct{}) {
	buf := make([]byte, 8<<10)
	for {
		n, err := f.Read(buf)
		more := err == nil
		concerns := !more
		for ev := range hostfs.InotifyEvents(buf[:max(n, 0)]) {
			name := string(ev.Name)
			concerns = concerns || name == base || name == dataLink || ev.Mask&unix.IN_Q_OVERFLOW != 0
			if ev.Mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0 {
				concerns, more = true, false
			}
		}
		if !concerns {
			continue
		}
		select {
		case events <- more:
		case <-stop:
			return
		}
		if !more {
			return
		}
	}
}
