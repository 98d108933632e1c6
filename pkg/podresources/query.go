// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// A call that the kubelet's rate limit refused is held back for throttled at
// first, then for twice as long each time.
const (
	throttled    = 100 * time.Millisecond
	maxThrottled = 2 * time.Second
)

// ask puts one question to the kubelet, twice at most: a connection that has
// worked and is broken tells of a restart, and the new kubelet may be there. size
// is that of the pod's part of the answer, in bytes.
func (c *Client) ask(ctx context.Context, key PodKey) (a Allocation, size int, err error) {
	q := question{key: key, socket: c.socket}
	for again := false; ; again = true {
		k, err := c.acquire(q)
		if err != nil {
			return Allocation{}, 0, err
		}
		before := k.worked.Load()
		a, size, err := c.query(ctx, k, q)
		broken := errdefs.IsUnavailable(err)
		c.release(k, broken)
		if !broken {
			return a, size, err
		}
		if again || !before || ctx.Err() != nil {
			return Allocation{}, 0, k.explain(q, err)
		}
	}
}

// explain says why the connection could not be made, which grpc only quotes.
func (k *conn) explain(q question, err error) error {
	dial := k.dial.Load()
	if dial == nil {
		return err
	}
	if *dial == nil {
		l := k.line.Load()
		if broke := l.broke.Load(); broke != nil && !l.heard.Load() {
			if why := cut(*broke); why != nil {
				return q.fail(errdefs.ErrUnavailable, "is the kubelet restarting? the next attempt connects anew",
					"who listens on the socket ended the connection before a first answer: %v", why)
			}
		}
		return err
	}
	if errors.Is(*dial, syscall.ECONNREFUSED) {
		return q.fail(errdefs.ErrUnavailable, "is the kubelet running?", "nobody listens on the socket: %v", syscall.ECONNREFUSED)
	}
	return q.file(*dial)
}

// cut is how the other side ended a connection, without the addresses around it; nil
// where this side did, which waited for too long.
func cut(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return nil
}

// query prefers Get and falls back to List. A kubelet that has Get off and one
// that does not know the pod answer with the same code, so List decides.
func (c *Client) query(ctx context.Context, k *conn, q question) (Allocation, int, error) {
	var refused error
	if !k.noGet.Load() {
		q := q
		q.method = "Get"
		b, err := c.call(ctx, k, v1.PodResourcesLister_Get_FullMethodName,
			&v1.GetPodResourcesRequest{PodName: q.key.Name, PodNamespace: q.key.Namespace})
		switch status.Code(err) {
		case codes.OK:
			return q.got(b)
		case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable, codes.ResourceExhausted:
			return Allocation{}, 0, q.rpc(err)
		case codes.Unimplemented:
			k.noGet.Store(true)
		default:
			refused = q.rpc(err)
		}
	}
	q.method = "List"
	b, err := c.call(ctx, k, v1.PodResourcesLister_List_FullMethodName, &v1.ListPodResourcesRequest{})
	if err != nil {
		return Allocation{}, 0, q.rpc(err)
	}
	a, size, found, err := q.listed(b)
	switch {
	case err != nil:
		return Allocation{}, 0, err
	case !found:
		return Allocation{}, 0, q.fail(errdefs.ErrNotFound, "", "the kubelet does not list the pod")
	}
	if refused != nil {
		k.noGet.Store(true)
	}
	return a, size, nil
}

// call makes one call, within the rate limit; one that the kubelet's own limit
// refuses is made again while there is time.
func (c *Client) call(ctx context.Context, k *conn, method string, req proto.Message) ([]byte, error) {
	for pause := throttled; ; pause = min(2*pause, maxThrottled) {
		if err := c.limit.wait(ctx); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		var answer rawAnswer
		err := k.cc.Invoke(ctx, method, req, &answer)
		if err == nil {
			k.worked.Store(true)
			return answer.b, nil
		}
		if status.Code(err) != codes.ResourceExhausted || tooLarge(err) || sleep(ctx, pause) != nil {
			return nil, err
		}
	}
}
