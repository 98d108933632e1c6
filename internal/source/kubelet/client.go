// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
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
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

const (
	// maxAnswer bounds a message in bytes, with the same limit as Multus' and Kubernetes' own
	// clients. A list has an entry for each device ID of the node, and some device plugins have one
	// for each MiB of memory. The client decodes a message as a whole.
	maxAnswer = 16 << 20
	// maxAttempts bounds the connections of one request. The second one serves a kubelet that
	// restarts during the request.
	maxAttempts = 2
	// throttleDelay is the delay before a call is repeated that the kubelet's rate limit rejected.
	throttleDelay = 100 * time.Millisecond
)

// QueryPod returns the devices that the kubelet allocated to the pod's containers. socket is a host
// path. QueryPod returns when ctx ends, even if the kubelet is unresponsive. A container that calls
// it must mount the socket's directory, because a restarted kubelet re-creates the socket. It is
// safe for concurrent use. The error wraps a [diag.Diagnostic] of the socket and one of:
//
//	errdefs.ErrNotFound            the kubelet does not know the pod (yet)
//	errdefs.ErrUnavailable         no socket, or no kubelet behind it
//	errdefs.ErrPermissionDenied    the socket cannot be opened
//	errdefs.ErrInvalidArgument     the arguments, the socket file or the answer are invalid
//	errdefs.ErrConflict            the answer lists the pod or a container twice
//	errdefs.ErrResourceExhausted   the answer is too large, or the kubelet's rate limit refuses
//	context.DeadlineExceeded       no answer in time
//	context.Canceled               the caller canceled
//	errdefs.ErrUnknown             the kubelet refused for another reason
func QueryPod(ctx context.Context, host hostfs.Root, socket, namespace, name string) (allocation.Allocation, error) {
	q := query{wanted: "the devices of pod", namespace: namespace, name: name, socket: socket}
	if err := q.check(); err != nil {
		return nil, err
	}
	var answer *v1.ListPodResourcesResponse
	err := q.call(ctx, host, func(conn *grpc.ClientConn) (err error) {
		answer, err = v1.NewPodResourcesListerClient(conn).List(ctx, &v1.ListPodResourcesRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.findPod(answer)
}

// check checks the pod's names before anything is sent.
func (q *query) check() error {
	if q.namespace != "" && q.name != "" && max(len(q.namespace), len(q.name)) <= maxText {
		return nil
	}
	q.namespace, q.name = diag.Excerpt(q.namespace, 64), diag.Excerpt(q.name, 64)
	return q.newError(errdefs.ErrInvalidArgument, "",
		"a pod needs a namespace and a name, of at most %d bytes each", maxText)
}

// call runs a call of the kubelet over a connection of its own, and once more if the kubelet ends the
// connection.
func (q query) call(ctx context.Context, host hostfs.Root, f func(conn *grpc.ClientConn) error) error {
	for attempt := 1; ; attempt++ {
		conn, err := dialSocket(ctx, host, q.socket)
		switch {
		case ctx.Err() != nil:
			return q.callFailed(status.FromContextError(ctx.Err()).Err())
		case err != nil:
			return q.dialFailed(err)
		}
		if err = callOver(ctx, conn, f); err == nil {
			return nil
		}
		isRestart := status.Code(err) == codes.Unavailable
		if err = q.callFailed(err); attempt == maxAttempts || !isRestart || ctx.Err() != nil {
			return err
		}
	}
}

// dialSocket connects to the socket. It does not open a file of another type, and resolves symlinks
// below the host root.
func dialSocket(ctx context.Context, host hostfs.Root, socket string) (net.Conn, error) {
	f, err := host.Open(socket, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("it is a %s, not a socket: %w", hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	// The path of the descriptor avoids the limit of 107 bytes.
	return (&net.Dialer{}).DialContext(ctx, "unix", hostfs.DescriptorPath(int(f.Fd())))
}

// callOver runs f with a client of an open connection, and closes the connection. It repeats a call
// that the kubelet's rate limit rejects.
func callOver(ctx context.Context, conn net.Conn, f func(conn *grpc.ClientConn) error) error {
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
		return err
	}
	defer client.Close()
	isThrottled := func(err error) bool { return status.Code(err) == codes.ResourceExhausted && !isTooLarge(err) }
	return retry.Every(throttleDelay).Retry(ctx, isThrottled, func() error { return f(client) })
}
