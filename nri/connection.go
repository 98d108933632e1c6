// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
	"github.com/jackfield/jackfield/internal/report/status"
)

// A container that is created while the plugin is not connected comes up without its devices.
// So the plugin tries the runtime's socket at a short interval. A doubling interval would keep the
// plugin away for as long as the runtime was down. A node without a runtime has fewer attempts
// after a while, until its socket is created.

const (
	// connectInterval is the time between two attempts to connect.
	connectInterval = 25 * time.Millisecond
	// quickPeriod is how long attempts follow at connectInterval: after the connection was lost, and
	// after the runtime's socket was created, which happens some time before it accepts connections.
	quickPeriod = time.Minute
	// idleInterval is the time between two attempts after quickPeriod.
	idleInterval = time.Second
	// maxRegisterDelay bounds the time between two attempts to register with a runtime that
	// accepts connections and refuses the plugin.
	maxRegisterDelay = time.Second
	// repeatWarningInterval is how often an unchanged failure is logged.
	repeatWarningInterval = time.Minute
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 5 * time.Second
)

// runtimeLink is the connection to the runtime and what the runtime reports of itself.
type runtimeLink struct {
	calls      callTracker
	registered atomic.Bool // the runtime has reported what lives, or never does
	// unsynchronized means that the runtime never calls Synchronize: see registerWithoutSynchronize.
	unsynchronized atomic.Bool
	capabilities   atomic.Pointer[capability.Capabilities]
	timeout        atomic.Int64                   // of a request, in nanoseconds
	info           atomic.Pointer[status.Runtime] // what the runtime of the last registration reported of itself

	mu    sync.Mutex
	stub  stub.Stub
	ready chan struct{} // closed when the present connection is configured
}

// crio is the name by which CRI-O registers plugins.
const crio = "cri-o"

// runtimeName returns the name of the runtime, "" before the first registration.
func (p *Plugin) runtimeName() string {
	if info := p.runtime.info.Load(); info != nil {
		return info.Name
	}
	return ""
}

func (p *Plugin) requestTimeout() time.Duration { return time.Duration(p.runtime.timeout.Load()) }

// Run serves the runtime until ctx ends. When the connection is lost the plugin connects again
// as soon as the runtime listens. A plugin that the runtime started ends with its connection.
func (p *Plugin) Run(ctx context.Context) error {
	defer func() { p.log.WithFields(p.counters.Totals()).Info("ended") }()
	warnings := &connectionWarnings{log: p.log}
	dialer := net.Dialer{Timeout: dialTimeout}
	socket := cmp.Or(p.opts.Socket, api.DefaultSocketPath)
	dial := func() (net.Conn, error) { return dialer.Dial("unix", socket) }
	created, stop := p.watchSocket(socket)
	defer stop()
	delay := connectInterval
	for {
		var conn net.Conn // nil for the connection that the runtime passed on
		if !p.opts.Inherited {
			if conn = dialUntilConnected(ctx, dial, created, warnings.logFailure); conn == nil {
				return nil
			}
		}
		registrations := p.counters.Connections.Load()
		err := p.serveConnection(ctx, conn)
		if ctx.Err() != nil {
			return nil
		}
		if p.opts.Inherited {
			return err
		}
		if p.counters.Connections.Load() > registrations {
			// The runtime is being restarted.
			warnings.forgetReason()
			delay = connectInterval
		}
		warnings.logFailure(err)
		deadline.Sleep(ctx, delay)
		delay = min(2*delay, maxRegisterDelay)
	}
}

// watchSocket returns a channel that receives when the runtime's socket may have been created, and a
// function that ends that. The channel receives nothing where the directory cannot be watched.
func (p *Plugin) watchSocket(socket string) (created <-chan struct{}, stop func()) {
	if p.opts.Inherited {
		return nil, func() {}
	}
	host := hostfs.Host() // the plugin connects in its own file system
	watcher, err := watch.New(host, watch.Options{})
	if err != nil {
		p.log.Debugf("watch the runtime's socket: %v", err)
		return nil, func() {}
	}
	events := make(chan struct{}, 1)
	notify := func(string) {
		select {
		case events <- struct{}{}:
		default:
		}
	}
	if _, err := watcher.Add(host.Canonical(path.Dir(socket)), path.Base(socket), 0, notify); err != nil {
		p.log.Debugf("watch the runtime's socket: %v", err)
	}
	return events, func() { watcher.Close() }
}

// dialUntilConnected calls dial until it succeeds, and passes each failure to warn. created receives when
// the socket may have been created. It returns nil when ctx ends.
func dialUntilConnected(ctx context.Context, dial func() (net.Conn, error), created <-chan struct{}, warn func(error)) net.Conn {
	quickUntil := time.Now().Add(quickPeriod)
	for ctx.Err() == nil {
		conn, err := dial()
		if err == nil {
			return conn
		}
		warn(err)
		interval := idleInterval
		if time.Now().Before(quickUntil) {
			interval = connectInterval
		}
		select {
		case <-ctx.Done():
		case <-created:
			quickUntil = time.Now().Add(quickPeriod)
		case <-time.After(interval):
		}
	}
	return nil
}

// serveConnection serves one connection, from registering to its end.
func (p *Plugin) serveConnection(ctx context.Context, conn net.Conn) error {
	// The connection outlives ctx until the calls under way have their answers.
	outlives, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := context.AfterFunc(ctx, func() {
		p.runtime.calls.waitUntilQuiet(p.requestTimeout())
		cancel()
	})
	defer ended()
	defer p.runtime.registered.Store(false)
	if conn != nil {
		defer conn.Close() // the stub leaves it open when it cannot start
	}
	s, err := stub.New(p, p.stubOptions(conn)...)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	p.runtime.mu.Lock()
	p.runtime.stub, p.runtime.ready = s, ready
	p.runtime.mu.Unlock()

	limit := 2 * s.RegistrationTimeout()
	done := make(chan error, 1)
	go func() { done <- s.Run(outlives) }()
	select {
	case err := <-done:
		return err
	case <-ready:
		return <-done
	case <-time.After(limit):
		// The stub waits for the runtime's Configure without a limit and holds its lock
		// meanwhile: it is left behind.
		return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf("register with the runtime: no answer within %v", limit))
	}
}

func (p *Plugin) stubOptions(conn net.Conn) []stub.Option {
	options := []stub.Option{
		stub.WithPluginName(p.opts.Name),
		stub.WithLogger(stubLogger{p.log}),
		stub.WithTTRPCOptions(nil, []ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(addNRIVersion)}),
		// Without an answer there is no container: a granted attachment must not be missing
		// silently.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}),
		// The stub calls back instead of leaving the process.
		stub.WithOnClose(func() {}),
	}
	if os.Getenv(api.PluginIdxEnvVar) == "" {
		options = append(options, stub.WithPluginIdx(p.opts.Index))
	}
	if conn != nil {
		options = append(options, stub.WithConnection(conn))
	}
	return options
}

// recordConfigure takes what the runtime reports in Configure, and returns its NRI version.
// Runtimes before NRI 0.7 do not report their request timeout; it is the default. Runtimes
// before NRI 0.12 do not report their NRI version; it is inferred from the runtime's own. An
// unknown version is "", which has no capabilities.
func (r *runtimeLink) recordConfigure(runtime, version string) (nriVersion string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	timeout := stub.DefaultRequestTimeout
	if r.stub != nil {
		nriVersion = r.stub.RuntimeNRIVersion()
		timeout = cmp.Or(max(r.stub.RequestTimeout(), 0), timeout)
	}
	if !isNRIVersion(nriVersion) {
		nriVersion = inferNRIVersion(runtime, version)
	}
	can := capability.ForVersion(nriVersion)
	r.capabilities.Store(&can)
	r.timeout.Store(int64(timeout))
	r.info.Store(&status.Runtime{Name: runtime, Version: version, NRI: nriVersion})
	if r.ready != nil {
		close(r.ready)
		r.ready = nil
	}
	return nriVersion
}

// addNRIVersion is an interceptor that adds the NRI version to a Configure request without
// one, before the stub reads it. The stub infers the version itself, but knows runtime versions
// only with a leading v, which CRI-O's do not have, and logs a warning for any other.
func addNRIVersion(ctx context.Context, unmarshal ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
	return method(ctx, func(v any) error {
		if err := unmarshal(v); err != nil {
			return err
		}
		if req, ok := v.(*api.ConfigureRequest); ok && !isNRIVersion(req.NRIVersion) {
			if inferred := inferNRIVersion(req.RuntimeName, req.RuntimeVersion); inferred != "" {
				req.NRIVersion = inferred
			}
		}
		return nil
	})
}

// isNRIVersion reports whether a reported NRI version is one, rather than a placeholder.
func isNRIVersion(version string) bool {
	return version != "" && version != api.UnknownVersion && version != api.DevelVersion && version != "unknown"
}

// inferNRIVersion returns the NRI version of a runtime's release, "" for an unknown one.
// Distributions change the end of a version ("1.7.24~ds1", "2.1.9+unknown").
func inferNRIVersion(runtime, version string) string {
	release := strings.TrimPrefix(version, "v")
	if end := strings.IndexFunc(release, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		release = release[:end]
	}
	inferred, err := api.InferVersionFromRuntime(runtime, "v"+release)
	if err != nil {
		return ""
	}
	return inferred
}

// connectionWarnings logs why there is no connection: when the reason changes, and once a
// minute while it stays.
type connectionWarnings struct {
	log    *logrus.Entry
	reason string
	logged time.Time
}

func (w *connectionWarnings) logFailure(err error) {
	reason := err.Error()
	if reason == w.reason && time.Since(w.logged) < repeatWarningInterval {
		return
	}
	w.reason, w.logged = reason, time.Now()
	w.log.WithField("hint", "is NRI on in the runtime's configuration? run `jackfield doctor`").Warnf("no connection to the runtime: %s", diag.ErrorText(err))
}

// forgetReason makes the next failure a new one.
func (w *connectionWarnings) forgetReason() { w.reason = "" }

// stubLogger logs the NRI library's messages as details.
type stubLogger struct{ log *logrus.Entry }

func (l stubLogger) Debugf(_ context.Context, format string, args ...any) {
	l.log.Debugf(format, args...)
}
func (l stubLogger) Infof(_ context.Context, format string, args ...any) {
	l.log.Debugf(format, args...)
}
func (l stubLogger) Warnf(_ context.Context, format string, args ...any) {
	l.log.Warnf(format, args...)
}
func (l stubLogger) Errorf(_ context.Context, format string, args ...any) {
	l.log.Errorf(format, args...)
}

const (
	// quietPeriod is how long no call may be under way before the connection is closed: the last
	// answer is written meanwhile, and the runtime may have sent a call that is not read yet.
	quietPeriod = 200 * time.Millisecond
	// shortQuietPeriod has to do on a node where calls never pause.
	shortQuietPeriod = 10 * time.Millisecond
)

// callTracker knows which calls of the runtime are under way. At shutdown it keeps the
// connection open until they have their answers: a runtime that loses the plugin while it
// waits creates the container without what it was granted.
type callTracker struct {
	running  atomic.Int64
	finished atomic.Uint64
}

// waitUntilQuiet returns when no call has been under way for a while. A call takes limit at most.
func (t *callTracker) waitUntilQuiet(limit time.Duration) {
	began, lastCall, before := time.Now(), time.Now(), t.finished.Load()
	for ; time.Since(began) < 2*limit; time.Sleep(time.Millisecond) {
		if n := t.finished.Load(); t.running.Load() > 0 || n != before {
			lastCall, before = time.Now(), n
			continue
		}
		quiet := time.Since(lastCall)
		if quiet >= quietPeriod || quiet >= shortQuietPeriod && time.Since(began) >= limit {
			return
		}
	}
}
