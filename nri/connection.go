// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"fmt"
	"net"
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
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/base/throttle"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/engine"
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
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 5 * time.Second
)

// runtimeLink is the connection to the runtime, with the runtime's own description of itself.
type runtimeLink struct {
	*daemon
	opts         Options
	calls        *runtimeCalls
	registered   atomic.Bool // Synchronize ran, or the runtime never calls it
	capabilities atomic.Pointer[capability.Capabilities]
	info         atomic.Pointer[status.Runtime] // from the last registration; nil before the first

	failures throttle.Throttle[string] // to connect and register, by reason

	mu    sync.Mutex
	stub  stub.Stub
	ready chan struct{} // closed when the present connection is configured
}

func newRuntimeLink(d *daemon, opts Options, calls *runtimeCalls) *runtimeLink {
	r := &runtimeLink{daemon: d, opts: opts, calls: calls}
	r.capabilities.Store(&capability.Capabilities{})
	return r
}

// name returns the name of the runtime, "" before the first registration.
func (r *runtimeLink) name() string {
	if info := r.info.Load(); info != nil {
		return info.Name
	}
	return ""
}

// capabilitiesFor returns the edits that the runtime can apply to a container.
func (r *runtimeLink) capabilitiesFor(req *engine.Request) capability.Capabilities {
	can := *r.capabilities.Load()
	can.UserNS = req.UserNS != nil
	if req.User != nil {
		can.UID = &req.User.UID
	}
	return can
}

// run connects plugin to the runtime until ctx ends. When the connection is lost it connects again as soon as
// the runtime listens. With an inherited connection it returns when the connection ends.
func (r *runtimeLink) run(ctx context.Context, plugin any) error {
	defer r.failures.Reset()
	dialer := net.Dialer{Timeout: dialTimeout}
	socket := cmp.Or(r.opts.Socket, api.DefaultSocketPath)
	dial := func() (net.Conn, error) { return dialer.Dial("unix", socket) }
	created, stop := r.watchSocket(socket)
	defer stop()
	backoff := retry.Backoff{First: connectInterval, Last: maxRegisterDelay}
	for {
		var conn net.Conn // nil for the inherited connection
		if !r.opts.Inherited {
			if conn = dialUntilConnected(ctx, dial, created, r.logFailure); conn == nil {
				return nil
			}
		}
		registrations := r.counters.Connections.Load()
		err := r.serve(ctx, plugin, conn)
		if ctx.Err() != nil {
			return nil
		}
		if r.opts.Inherited {
			return err
		}
		if r.counters.Connections.Load() > registrations {
			backoff.Reset() // the runtime is being restarted
		}
		r.logFailure(err)
		deadline.Sleep(ctx, backoff.NextWait())
	}
}

// watchSocket returns a channel that receives when the runtime's socket may have been created, and a function
// that ends the watch. The channel receives nothing if the directory cannot be watched.
func (r *runtimeLink) watchSocket(socket string) (events wakeup, stop func()) {
	if r.opts.Inherited {
		return nil, func() {}
	}
	host := hostfs.Host() // the plugin connects in its own file system
	watcher, err := watch.New(host, watch.Options{})
	if err != nil {
		r.log.Debugf("watch the runtime's socket: %v", err)
		return nil, func() {}
	}
	events = newWakeup()
	created := func(string) { events.send() }
	if _, err := watcher.Add(host.Canonical(path.Dir(socket)), path.Base(socket), 0, created); err != nil {
		r.log.Debugf("watch the runtime's socket: %v", err)
	}
	return events, func() { watcher.Close() }
}

// dialUntilConnected calls dial until it succeeds, and passes each failure to warn. created receives when
// the socket may have been created. It returns nil when ctx ends.
func dialUntilConnected(
	ctx context.Context, dial func() (net.Conn, error), created <-chan struct{}, warn func(error)) net.Conn {
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

// serve serves one connection, from registering to its end.
func (r *runtimeLink) serve(ctx context.Context, plugin any, conn net.Conn) error {
	// The connection outlives ctx until the calls under way have their responses.
	outlives, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := context.AfterFunc(ctx, func() {
		r.calls.waitUntilQuiet()
		cancel()
	})
	defer ended()
	defer r.registered.Store(false)
	if conn != nil {
		defer conn.Close() // the stub leaves it open when it cannot start
	}
	s, err := stub.New(plugin, r.stubOptions(conn)...)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	r.mu.Lock()
	r.stub, r.ready = s, ready
	r.mu.Unlock()

	limit := 2 * s.RegistrationTimeout()
	done := make(chan error, 1)
	go func() { done <- s.Run(outlives) }()
	select {
	case err := <-done:
		return err
	case <-ready:
		return <-done
	case <-time.After(limit):
		// The stub waits for the runtime's Configure without a limit and holds its lock meanwhile, so it
		// cannot be stopped.
		return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf("register with the runtime: no answer within %v", limit))
	}
}

// stubOptions returns the options of the NRI stub. conn is nil if the runtime has started the plugin and passed the
// connection in the environment.
func (r *runtimeLink) stubOptions(conn net.Conn) []stub.Option {
	options := []stub.Option{
		stub.WithPluginName(r.opts.Name),
		stub.WithLogger(stubLogger{r.log}),
		stub.WithTTRPCOptions(nil, []ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(addNRIVersion)}),
		// Without a response there is no container: a granted attachment must not be missing silently.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}),
		// Without this function the stub exits the process.
		stub.WithOnClose(func() {}),
	}
	if !r.opts.IndexInEnv {
		options = append(options, stub.WithPluginIdx(r.opts.Index))
	}
	if conn != nil {
		options = append(options, stub.WithConnection(conn))
	}
	return options
}

// recordConfigure stores the runtime's description of itself from Configure, and returns its NRI version.
// Runtimes before NRI 0.7 do not report their request timeout, which is then the default. Runtimes before
// NRI 0.12 do not report their NRI version, which is then inferred from the runtime's own. An unknown version
// is "", which has no capabilities.
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
	r.calls.timeout.Store(int64(timeout))
	r.info.Store(&status.Runtime{Name: runtime, Version: version, NRI: nriVersion})
	if r.ready != nil {
		close(r.ready)
		r.ready = nil
	}
	return nriVersion
}

// addNRIVersion is an interceptor that adds the NRI version to a Configure request without one, before the
// stub reads it. The stub infers the version itself, but recognizes runtime versions only with a leading v,
// which CRI-O's do not have, and logs a warning for all others.
func addNRIVersion(
	ctx context.Context, unmarshal ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, method ttrpc.Method) (any, error) {
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

// isNRIVersion reports whether a reported NRI version is a version and not a placeholder.
func isNRIVersion(version string) bool {
	return version != "" && version != api.UnknownVersion && version != api.DevelVersion && version != "unknown"
}

// inferNRIVersion returns the NRI version of a runtime's release, "" for an unknown release. Distributions
// change the end of a version ("1.7.24~ds1", "2.1.9+unknown").
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

// logFailure logs why there is no connection, each reason at once and then once a minute.
func (r *runtimeLink) logFailure(err error) {
	reason := diag.ErrorText(err)
	r.failures.Report(reason, func(repeats int) {
		withRepeats(r.log, repeats).
			WithField("hint", "is NRI on in the runtime's configuration? run `jackfield doctor`").
			Warnf("no connection to the runtime: %s", reason)
	})
}

// markRegistered ends the warnings about a missing connection.
func (r *runtimeLink) markRegistered() {
	r.counters.Connections.Add(1)
	r.registered.Store(true)
	r.failures.Reset()
}

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
