// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/time/rate"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// DefaultSocket is the kubelet's socket. A container that uses it mounts the directory,
// because a restarted kubelet re-creates the socket.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Options of a client. A value of 0 or less stands for the default.
type Options struct {
	Timeout     time.Duration // of one call of Pod; 1 s
	CallTimeout time.Duration // of a request, which later calls of Pod can use; 15 s, at least Timeout
	MissTTL     time.Duration // how long the client remembers that the kubelet does not know a pod; 250 ms
	Cache       int           // pods whose answers are kept; 512
	InFlight    int           // concurrent requests; 64
	QPS         int           // requests per second; 50, half of the kubelet's limit for all its clients
	Burst       int           // requests at once after a pause; 10, as the kubelet
}

func (o Options) withDefaults() Options {
	o.Timeout = orDefault(o.Timeout, time.Second)
	o.CallTimeout = max(orDefault(o.CallTimeout, 15*time.Second), o.Timeout)
	o.MissTTL = orDefault(o.MissTTL, 250*time.Millisecond)
	o.Cache = orDefault(o.Cache, 512)
	o.InFlight = orDefault(o.InFlight, 64)
	o.QPS = orDefault(o.QPS, 50)
	o.Burst = orDefault(o.Burst, 10)
	return o
}

func orDefault[T int | time.Duration](value, def T) T {
	if value <= 0 {
		return def
	}
	return value
}

// Client is a client of one kubelet. It is safe for concurrent use.
type Client struct {
	host   hostfs.Root
	socket string
	opts   Options
	limit  *rate.Limiter

	lifetime context.Context // ends with Close
	end      context.CancelFunc
	running  sync.WaitGroup // requests

	mu       sync.Mutex
	closed   bool
	cache    *cache
	requests map[PodKey]*request
	// getUnsupported is the socket of a kubelet that does not support Get.
	getUnsupported socketID
}

// request is one request in flight.
type request struct {
	done   chan struct{} // closed when answer and err are set
	answer Allocation
	err    error
}

// New returns a client of the kubelet behind socket, a host path; "" is [DefaultSocket].
func New(host hostfs.Root, socket string, opts Options) (*Client, error) {
	if socket == "" {
		socket = DefaultSocket
	}
	if err := hostfs.CheckPath(socket); err != nil {
		return nil, fmt.Errorf("create pod resources client: socket: %w", err)
	}
	opts = opts.withDefaults()
	c := &Client{
		host: host, socket: socket, opts: opts,
		limit:    rate.NewLimiter(rate.Limit(opts.QPS), opts.Burst),
		cache:    newCache(opts.Cache),
		requests: map[PodKey]*request{},
	}
	c.lifetime, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Pod returns what the kubelet allocated to the pod's containers. It returns when ctx ends
// or after Options.Timeout, whichever is first. Every error is an [*Error].
func (c *Client) Pod(ctx context.Context, key PodKey) (Allocation, error) {
	q := query{key: key, socket: c.socket}
	if err := ctx.Err(); err != nil {
		return Allocation{}, q.newError(err, "", "%v", err)
	}
	answer, r, err := c.startRequest(q)
	if r == nil {
		return answer, err
	}
	timeout := time.NewTimer(c.opts.Timeout)
	defer timeout.Stop()
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-timeout.C:
	}
	select {
	case <-r.done: // an answer that arrives together with the timeout counts
		return r.answer.Clone(), r.err
	default:
	}
	if err := ctx.Err(); err != nil {
		return Allocation{}, q.newError(err, "", "no answer: %v", err)
	}
	return Allocation{}, q.newError(context.DeadlineExceeded, "the kubelet is slow; its answer will serve the next attempt",
		"no answer within %v", c.opts.Timeout)
}

// Prefetch requests a pod without waiting, so that [Client.Pod] finds the answer. Pod
// reports the error if the request fails.
func (c *Client) Prefetch(key PodKey) {
	if key.UID != "" {
		_, _, _ = c.startRequest(query{key: key, socket: c.socket})
	}
}

// Close ends all requests and waits until they have closed their connections. Later calls
// are errdefs.ErrUnavailable.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.running.Wait()
	return nil
}

// startRequest returns a kept answer, or the request that will have one.
func (c *Client) startRequest(q query) (Allocation, *request, error) {
	k := q.key
	if k.Namespace == "" || k.Name == "" || max(len(k.Namespace), len(k.Name), len(k.UID)) > maxText {
		q.key = PodKey{Namespace: diag.Excerpt(k.Namespace, 64), Name: diag.Excerpt(k.Name, 64)}
		return Allocation{}, nil, q.newError(errdefs.ErrInvalidArgument, "", "a pod needs a namespace and a name, of at most %d bytes each", maxText)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Allocation{}, nil, q.closed()
	}
	if answer, err, ok := c.cache.findAnswer(k, time.Now()); ok {
		return answer, nil, err
	}
	if r := c.requests[k]; r != nil {
		return Allocation{}, r, nil
	}
	if len(c.requests) >= c.opts.InFlight {
		return Allocation{}, nil, q.newError(errdefs.ErrResourceExhausted, "", "%d requests are already in flight", len(c.requests))
	}
	r := &request{done: make(chan struct{})}
	c.requests[k] = r
	c.running.Go(func() { c.runRequest(q, r) })
	return Allocation{}, r, nil
}

// runRequest makes the request and keeps the answer.
func (c *Client) runRequest(q query, r *request) {
	ctx, cancel := context.WithTimeout(c.lifetime, c.opts.CallTimeout)
	defer cancel()
	r.answer, r.err = c.askKubelet(ctx, q)
	if r.err != nil && c.lifetime.Err() != nil {
		r.err = q.closed()
	}
	c.mu.Lock()
	delete(c.requests, q.key)
	if q.key.UID != "" {
		switch {
		case r.err == nil:
			c.cache.keepAnswer(q.key, cached{answer: r.answer}, time.Now())
		case errdefs.IsNotFound(r.err):
			c.cache.keepAnswer(q.key, cached{err: r.err, until: time.Now().Add(c.opts.MissTTL)}, time.Now())
		}
	}
	c.mu.Unlock()
	close(r.done)
}
