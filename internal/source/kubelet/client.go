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
	q := query{namespace: namespace, name: name, socket: socket}
	if namespace == "" || name == "" || max(len(namespace), len(name)) > maxText {
		q.namespace, q.name = diag.Excerpt(namespace, 64), diag.Excerpt(name, 64)
		return nil, q.newError(errdefs.ErrInvalidArgument, "",
			"a pod needs a namespace and a name, of at most %d bytes each", maxText)
	}
	for attempt := 1; ; attempt++ {
		conn, err := dialSocket(ctx, host, socket)
		switch {
		case ctx.Err() != nil:
			return nil, q.callFailed(status.FromContextError(ctx.Err()).Err())
		case err != nil:
			return nil, q.dialFailed(err)
		}
		answer, err := listPods(ctx, conn)
		if err == nil {
			return q.findPod(answer)
		}
		if err = q.callFailed(err); attempt == maxAttempts || !errdefs.IsUnavailable(err) || ctx.Err() != nil {
			return nil, err
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

// listPods calls List over an open connection, and closes the connection. It repeats a call that
// the kubelet's rate limit rejects.
func listPods(ctx context.Context, conn net.Conn) (answer *v1.ListPodResourcesResponse, err error) {
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
		return nil, err
	}
	defer client.Close()
	lister := v1.NewPodResourcesListerClient(client)
	isThrottled := func(err error) bool { return status.Code(err) == codes.ResourceExhausted && !isTooLarge(err) }
	err = retry.Every(throttleDelay).Retry(ctx, isThrottled, func() (err error) {
		answer, err = lister.List(ctx, &v1.ListPodResourcesRequest{})
		return err
	})
	return answer, err
}
