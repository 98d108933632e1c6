// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

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

// socketID identifies a socket file. The change time tells it from the socket of a
// restarted kubelet, which can get the same inode number.
type socketID struct {
	dev, ino uint64
	ctime    unix.Timespec
}

// askKubelet makes one request, with a connection of its own.
func (c *Client) askKubelet(ctx context.Context, q query) (Allocation, error) {
	for attempt := 1; ; attempt++ {
		conn, id, err := c.dialSocket(ctx)
		if err != nil {
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
		answer, err := retryThrottled(ctx, c, func() (*v1.GetPodResourcesResponse, error) {
			return lister.Get(ctx, &v1.GetPodResourcesRequest{PodName: q.key.Name, PodNamespace: q.key.Namespace})
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
	answer, err := retryThrottled(ctx, c, func() (*v1.ListPodResourcesResponse, error) {
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

// retryThrottled makes one call within the rate limit, and repeats it while the kubelet's
// own rate limit refuses it.
func retryThrottled[T any](ctx context.Context, c *Client, call func() (T, error)) (T, error) {
	for delay := throttleDelay; ; delay = min(2*delay, maxThrottleDelay) {
		if err := c.limit.Wait(ctx); err != nil {
			var none T
			if ctx.Err() == nil { // the deadline comes before this client's turn
				err = context.DeadlineExceeded
			}
			return none, status.FromContextError(err).Err()
		}
		answer, err := call()
		if status.Code(err) != codes.ResourceExhausted || isTooLarge(err) || !sleepUnlessDone(ctx, delay) {
			return answer, err
		}
	}
}

// sleepUnlessDone waits for d, and returns false if ctx ends first.
func sleepUnlessDone(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// fromGet validates the answer of Get.
func (q query) fromGet(answer *v1.GetPodResourcesResponse) (Allocation, error) {
	if answer.GetPodResources() == nil {
		return Allocation{}, q.newFieldError(errdefs.ErrInvalidArgument, "pod_resources", "it is missing")
	}
	return q.validatePod(answer.GetPodResources(), "pod_resources")
}

// fromList finds and validates the pod in the answer of List. Other pods are ignored.
func (q query) fromList(answer *v1.ListPodResourcesResponse) (Allocation, error) {
	first := -1
	pods := answer.GetPodResources()
	for i, pod := range pods {
		switch {
		case pod.GetName() != q.key.Name || pod.GetNamespace() != q.key.Namespace:
		case first < 0:
			first = i
		case !proto.Equal(pod, pods[first]):
			return Allocation{}, q.newFieldError(errdefs.ErrConflict, fmt.Sprintf("pod_resources[%d]", i),
				"the pod is already listed as item %d, with other devices", first)
		}
	}
	if first < 0 {
		return Allocation{}, q.newError(errdefs.ErrNotFound, "", "the kubelet does not list the pod")
	}
	return q.validatePod(pods[first], fmt.Sprintf("pod_resources[%d]", first))
}

// dialFailed describes a failure to connect.
func (q query) dialFailed(err error) error {
	if errors.Is(err, unix.ECONNREFUSED) {
		return q.newError(errdefs.ErrUnavailable, "is the kubelet running?", "nothing listens on the socket: %v", unix.ECONNREFUSED)
	}
	return q.fileFailed(err)
}
