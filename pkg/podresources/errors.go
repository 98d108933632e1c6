// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is the error of every question. It unwraps to a sentinel:
//
//	errdefs.ErrNotFound            the kubelet does not know the pod (yet)
//	errdefs.ErrUnavailable         no socket, no kubelet behind it, or the client is closed
//	errdefs.ErrPermissionDenied    the socket may not be opened
//	errdefs.ErrInvalidArgument     the question, the socket file or the answer is malformed
//	errdefs.ErrConflict            the answer lists the pod or a container twice
//	errdefs.ErrResourceExhausted   the answer is too large, or too many questions are open
//	context.DeadlineExceeded       no answer in time
//	context.Canceled               the caller gave up
//	errdefs.ErrUnknown             the kubelet refused, for a reason of its own
type Error struct {
	Pod     string // "namespace/name"
	Socket  string // host path of the socket
	Method  string // "Get" or "List", "" before one was called
	Field   string // path of the field in the answer, "pod_resources.containers[1].name"; "" outside an answer
	Problem string // what was found
	Hint    string // what to do; may be ""
	Err     error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ask the kubelet for the devices of pod %q: %s", e.Pod, e.Socket)
	if e.Method != "" {
		b.WriteString(": " + e.Method)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	b.WriteString(": " + e.Problem)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// question is what every error about one question has in common.
type question struct {
	key    PodKey
	socket string
	method string
}

func (q question) fail(sentinel error, hint, format string, args ...any) error {
	return &Error{Pod: q.key.String(), Socket: q.socket, Method: q.method, Problem: fmt.Sprintf(format, args...), Hint: hint, Err: sentinel}
}

// bad is the error for a field of the answer.
func (q question) bad(sentinel error, field, format string, args ...any) error {
	return &Error{Pod: q.key.String(), Socket: q.socket, Method: q.method, Field: field, Problem: fmt.Sprintf(format, args...), Err: sentinel}
}

// file is the error of looking at the socket.
func (q question) file(err error) error {
	problem := err.Error()
	var pe *fs.PathError
	if errors.As(err, &pe) {
		problem = pe.Err.Error()
	}
	switch {
	case errdefs.IsNotFound(err):
		return q.fail(errdefs.ErrUnavailable, "is the kubelet running, and its pod-resources directory mounted here?", "%s", problem)
	case errdefs.IsPermissionDenied(err):
		return q.fail(errdefs.ErrPermissionDenied, "only root may open it", "%s", problem)
	case errdefs.IsInvalidArgument(err):
		return q.fail(errdefs.ErrInvalidArgument, "", "%s", problem)
	}
	return q.fail(errdefs.ErrUnavailable, "", "%s", problem)
}

// rpc is the error of a call. The kubelet's own words are quoted and cut.
func (q question) rpc(err error) error {
	st := status.Convert(err)
	words := st.Message()
	if len(words) > 256 {
		words = words[:256] + "..."
	}
	switch st.Code() {
	case codes.DeadlineExceeded:
		return q.fail(context.DeadlineExceeded, "", "no answer in time")
	case codes.Canceled:
		return q.fail(context.Canceled, "", "given up")
	case codes.Unavailable:
		return q.fail(errdefs.ErrUnavailable, "is the kubelet running?", "%q", words)
	case codes.PermissionDenied, codes.Unauthenticated:
		return q.fail(errdefs.ErrPermissionDenied, "", "the kubelet refuses: %q", words)
	case codes.ResourceExhausted:
		if tooLarge(err) {
			return q.fail(errdefs.ErrResourceExhausted, "", "the answer is larger than the %d bytes allowed", maxAnswer)
		}
		return q.fail(errdefs.ErrResourceExhausted, "the kubelet answers 100 questions a second; who else asks?", "the kubelet refuses: %q", words)
	}
	return q.fail(errdefs.ErrUnknown, "", "the kubelet refuses: %s %q", st.Code(), words)
}

// tooLarge tells the client's own limit from the kubelet's rate limit, which has
// the same code; grpc has no other mark for it.
func tooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "larger than max")
}
