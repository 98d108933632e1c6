// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// DefaultSocket is where the kubelet serves the API. A container that is to reach
// it mounts the directory: the socket is made anew when the kubelet restarts.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Options of a client; the zero value is what a node needs.
type Options struct {
	Timeout     time.Duration // how long one call of Pod waits; 1 s
	CallTimeout time.Duration // how long a request may go on for the sake of later calls; 15 s, at least Timeout
	IdleTimeout time.Duration // how long an unused connection is kept; 30 s
	MissTTL     time.Duration // how long it is believed that the kubelet does not know a pod; 250 ms
	Cache       int           // pods whose answers are kept; 512
	InFlight    int           // requests under way at once; 64
	QPS         int           // requests a second; 50, half of what the kubelet allows to all its clients together
	Burst       int           // requests at once after a rest; 10, as the kubelet
}

func (o Options) withDefaults() (Options, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Timeout", &o.Timeout, time.Second}, {"CallTimeout", &o.CallTimeout, 15 * time.Second},
		{"IdleTimeout", &o.IdleTimeout, 30 * time.Second}, {"MissTTL", &o.MissTTL, 250 * time.Millisecond},
	} {
		if *f.value < 0 {
			return o, fmt.Errorf("make pod resources client: %s is %v, less than 0: %w", f.name, *f.value, errdefs.ErrInvalidArgument)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{{"Cache", &o.Cache, 512}, {"InFlight", &o.InFlight, 64}, {"QPS", &o.QPS, 50}, {"Burst", &o.Burst, 10}} {
		if *f.value < 0 {
			return o, fmt.Errorf("make pod resources client: %s is %d, less than 0: %w", f.name, *f.value, errdefs.ErrInvalidArgument)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	o.CallTimeout = max(o.CallTimeout, o.Timeout)
	return o, nil
}

// Client asks one kubelet. It is safe for concurrent use.
type Client struct {
	host   hostfs.Root
	socket string
	opts   Options
	limit  limiter

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // flights, and connections being closed

	mu      sync.Mutex // held for moments only, never across a call
	closed  bool
	cache   *cache
	flights map[PodKey]*flight
	conn    *conn
	idle    *time.Timer
}

// flight is one request that is under way and whoever waits for it.
type flight struct {
	done      chan struct{} // closed when a and err are set
	a         Allocation
	err       error
	forgotten bool // guarded by Client.mu: the answer is not to be kept
}

// New makes a client of the kubelet behind socket, a host path; "" is
// [DefaultSocket]. Nothing is opened and no goroutine runs before the first
// question.
func New(host hostfs.Root, socket string, opts Options) (*Client, error) {
	if socket == "" {
		socket = DefaultSocket
	}
	if err := hostfs.CheckPath(socket); err != nil {
		return nil, fmt.Errorf("make pod resources client: socket: %w", err)
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		host: host, socket: socket, opts: opts,
		limit:   limiter{interval: time.Second / time.Duration(opts.QPS), burst: opts.Burst},
		cache:   newCache(opts.Cache),
		flights: map[PodKey]*flight{},
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.idle = time.AfterFunc(time.Hour, c.closeIdle)
	c.idle.Stop()
	return c, nil
}

// Pod is what the kubelet gave to the pod's containers. It returns when ctx ends
// or after Options.Timeout, whichever is first; see [Error] for what it returns.
func (c *Client) Pod(ctx context.Context, key PodKey) (Allocation, error) {
	q := question{key: key, socket: c.socket}
	if err := ctx.Err(); err != nil {
		return Allocation{}, q.fail(err, "", "%v", err)
	}
	a, f, err := c.start(q)
	if f == nil {
		return a, err
	}
	budget := time.NewTimer(c.opts.Timeout)
	defer budget.Stop()
	select {
	case <-f.done:
	case <-ctx.Done():
	case <-budget.C:
	}
	select {
	case <-f.done: // an answer that is there counts, whichever was seen first
		return f.a.Clone(), f.err
	default:
	}
	if err := ctx.Err(); err != nil {
		return Allocation{}, q.fail(err, "", "no answer: %v", err)
	}
	return Allocation{}, q.fail(context.DeadlineExceeded, "the kubelet is slow; its answer is waited for and will serve the next attempt",
		"no answer within %v", c.opts.Timeout)
}

// Prefetch asks about a pod without waiting, so that the answer is there when
// [Client.Pod] is called. It does nothing that Pod would not do, and fails silently
// where Pod would tell.
func (c *Client) Prefetch(key PodKey) {
	if key.UID != "" {
		c.start(question{key: key, socket: c.socket})
	}
}

// Forget drops what is known about a pod; a request under way is not kept either.
func (c *Client) Forget(key PodKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache.forget(key)
	if f := c.flights[key]; f != nil {
		f.forgotten = true
	}
}

// Close ends all requests and returns when no goroutine and no descriptor is
// left. Questions asked later are ErrUnavailable.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.idle.Stop()
	c.end()
	if c.conn != nil {
		c.retireLocked(c.conn)
	}
	c.mu.Unlock()
	c.work.Wait()
	return nil
}

// start gives what is known, or the flight that will tell.
func (c *Client) start(q question) (Allocation, *flight, error) {
	k := q.key
	if k.Namespace == "" || k.Name == "" || max(len(k.Namespace), len(k.Name), len(k.UID)) > maxText {
		q.key = PodKey{Namespace: clip(k.Namespace), Name: clip(k.Name)}
		return Allocation{}, nil, q.fail(errdefs.ErrInvalidArgument, "", "a pod has a namespace and a name, and nothing of it is longer than %d bytes", maxText)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Allocation{}, nil, q.fail(errdefs.ErrUnavailable, "", "the client is closed")
	}
	if a, err, ok := c.cache.get(q.key, time.Now()); ok {
		return a, nil, err
	}
	if f := c.flights[q.key]; f != nil {
		return Allocation{}, f, nil
	}
	if len(c.flights) >= c.opts.InFlight {
		return Allocation{}, nil, q.fail(errdefs.ErrResourceExhausted, "", "%d requests are under way already", len(c.flights))
	}
	f := &flight{done: make(chan struct{})}
	c.flights[q.key] = f
	c.work.Add(1)
	go c.fly(q.key, f)
	return Allocation{}, f, nil
}

// fly asks and keeps the answer.
func (c *Client) fly(key PodKey, f *flight) {
	defer c.work.Done()
	ctx, cancel := context.WithTimeout(c.life, c.opts.CallTimeout)
	defer cancel()
	a, size, err := c.ask(ctx, key)
	if err != nil && c.life.Err() != nil {
		err = question{key: key, socket: c.socket}.fail(errdefs.ErrUnavailable, "", "the client is closed")
	}
	c.mu.Lock()
	delete(c.flights, key)
	if key.UID != "" && !f.forgotten {
		switch {
		case err == nil && size <= maxCached:
			c.cache.put(&cached{key: key, a: a})
		case errdefs.IsNotFound(err):
			c.cache.put(&cached{key: key, err: err, until: time.Now().Add(c.opts.MissTTL)})
		}
	}
	c.mu.Unlock()
	f.a, f.err = a, err
	close(f.done)
}

func clip(s string) string { return s[:min(len(s), 64)] }
