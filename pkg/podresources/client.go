// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// DefaultSocket is the kubelet's socket. A container that uses it mounts the directory,
// because a restarted kubelet re-creates the socket.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	// maxAnswer bounds a message, in bytes. It is gRPC's own default, and leaves 8 KiB for each of 500
	// pods, more than a kubelet runs. The client decodes a message whole.
	maxAnswer = 4 << 20
	// maxAttempts bounds the connections of one request. The second one is for a kubelet
	// that restarts during the request.
	maxAttempts = 2
	// throttleDelay is the delay before a call that the kubelet's rate limit refused is
	// repeated. It doubles up to maxThrottleDelay.
	throttleDelay    = 100 * time.Millisecond
	maxThrottleDelay = 2 * time.Second
)

// Client is a client of one kubelet. It is safe for concurrent use and holds no connection.
type Client struct {
	host   hostfs.Root
	socket string

	mu sync.Mutex
	// getUnsupported is the socket of a kubelet that does not support Get.
	getUnsupported socketID
}

// socketID identifies a socket file. The change time tells it from the socket of a
// restarted kubelet, which can get the same inode number.
type socketID struct {
	dev, ino uint64
	ctime    unix.Timespec
}

// New returns a client of the kubelet behind socket, a host path; "" is [DefaultSocket].
func New(host hostfs.Root, socket string) (*Client, error) {
	if socket == "" {
		socket = DefaultSocket
	}
	if err := hostfs.CheckPath(socket); err != nil {
		return nil, fmt.Errorf("create pod resources client: socket: %w", err)
	}
	return &Client{host: host, socket: socket}, nil
}

// Pod returns what the kubelet allocated to the pod's containers. It returns when ctx ends, even if
// the kubelet is unresponsive. Every error is an [*Error].
func (c *Client) Pod(ctx context.Context, namespace, name string) (Allocation, error) {
	q := query{namespace: namespace, name: name, socket: c.socket}
	if namespace == "" || name == "" || max(len(namespace), len(name)) > maxText {
		q.namespace, q.name = diag.Excerpt(namespace, 64), diag.Excerpt(name, 64)
		return Allocation{}, q.newError(errdefs.ErrInvalidArgument, "", "a pod needs a namespace and a name, of at most %d bytes each", maxText)
	}
	for attempt := 1; ; attempt++ {
		conn, id, err := c.dialSocket(ctx)
		switch {
		case ctx.Err() != nil:
			return Allocation{}, q.callFailed(status.FromContextError(ctx.Err()).Err())
		case err != nil:
			return Allocation{}, q.dialFailed(err)
		}
		answer, err := c.callKubelet(ctx, conn, id, q)
		if attempt == maxAttempts || !errdefs.IsUnavailable(err) || ctx.Err() != nil {
			return answer, err
		}
	}
}

// dialSocket connects to the socket. A file of another type is not opened, and symlinks are
// resolved below the host root.
func (c *Client) dialSocket(ctx context.Context) (net.Conn, socketID, error) {
	f, err := c.host.Open(c.socket, unix.O_PATH)
	if err != nil {
		return nil, socketID{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, socketID{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, socketID{}, fmt.Errorf("it is a %s, not a socket: %w", hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	// The path of the descriptor has no limit of 107 bytes.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return conn, socketID{dev: uint64(st.Dev), ino: st.Ino, ctime: st.Ctim}, err
}

// callKubelet calls Get or List over an open connection, and closes the connection.
func (c *Client) callKubelet(ctx context.Context, conn net.Conn, id socketID, q query) (Allocation, error) {
	defer conn.Close()
	var used atomic.Bool
	client, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, net.ErrClosed // a broken connection fails the call
			}
			return conn, nil
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(),
	)
	if err != nil {
		return Allocation{}, q.newError(errdefs.ErrUnavailable, "", "%v", err)
	}
	defer client.Close()
	lister := v1.NewPodResourcesListerClient(client)

	c.mu.Lock()
	skipGet := c.getUnsupported == id
	c.mu.Unlock()
	getRefused := false
	if !skipGet {
		q.method = "Get"
		answer, err := retryThrottled(ctx, func() (*v1.GetPodResourcesResponse, error) {
			return lister.Get(ctx, &v1.GetPodResourcesRequest{PodName: q.name, PodNamespace: q.namespace})
		})
		switch status.Code(err) {
		case codes.OK:
			return q.fromGet(answer)
		case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable, codes.ResourceExhausted:
			return Allocation{}, q.callFailed(err)
		case codes.Unimplemented:
			c.skipGet(id)
		default:
			getRefused = true
		}
	}
	q.method = "List"
	answer, err := retryThrottled(ctx, func() (*v1.ListPodResourcesResponse, error) {
		return lister.List(ctx, &v1.ListPodResourcesRequest{})
	})
	if err != nil {
		return Allocation{}, q.callFailed(err)
	}
	a, err := q.fromList(answer)
	if getRefused && err == nil {
		c.skipGet(id) // List knows the pod, so Get is off
	}
	return a, err
}

// skipGet records that the kubelet behind a socket does not support Get.
func (c *Client) skipGet(id socketID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.getUnsupported = id
}

// retryThrottled makes one call, and repeats it while the kubelet's rate limit refuses it.
func retryThrottled[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for delay := throttleDelay; ; delay = min(2*delay, maxThrottleDelay) {
		answer, err := call()
		if status.Code(err) != codes.ResourceExhausted || isTooLarge(err) {
			return answer, err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return answer, err
		}
	}
}

// dialFailed describes a failure to connect.
func (q query) dialFailed(err error) error {
	if errors.Is(err, unix.ECONNREFUSED) {
		return q.newError(errdefs.ErrUnavailable, "is the kubelet running?", "nothing listens on the socket: %v", unix.ECONNREFUSED)
	}
	return q.fileFailed(err)
}
