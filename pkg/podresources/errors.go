// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/jackfield/jackfield/internal/diag"
)

// Error is the error of every call. It unwraps to a sentinel:
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
type Error struct {
	Pod     string // "namespace/name"
	Socket  string // host path of the socket
	Method  string // "Get" or "List"; "" before a call
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

// query is the pod, socket and method that every error of a request names.
type query struct {
	namespace, name string
	socket          string
	method          string
}

func (q query) newError(sentinel error, hint, format string, args ...any) error {
	return &Error{Pod: q.namespace + "/" + q.name, Socket: q.socket, Method: q.method, Problem: fmt.Sprintf(format, args...), Hint: hint, Err: sentinel}
}

// newFieldError returns the error for a field of the answer.
func (q query) newFieldError(sentinel error, field, format string, args ...any) error {
	return &Error{Pod: q.namespace + "/" + q.name, Socket: q.socket, Method: q.method, Field: field, Problem: fmt.Sprintf(format, args...), Err: sentinel}
}

// fileFailed returns the error for opening the socket file.
func (q query) fileFailed(err error) error {
	problem := diag.ErrorText(err)
	var errno unix.Errno
	if errors.As(err, &errno) {
		problem = errno.Error()
	}
	switch {
	case errdefs.IsNotFound(err):
		return q.newError(errdefs.ErrUnavailable, "is the kubelet running, and its pod-resources directory mounted here?", "%s", problem)
	case errdefs.IsPermissionDenied(err), errno == unix.EACCES:
		return q.newError(errdefs.ErrPermissionDenied, "only root can open it", "%s", problem)
	case errdefs.IsInvalidArgument(err):
		return q.newError(errdefs.ErrInvalidArgument, "", "%s", problem)
	}
	return q.newError(errdefs.ErrUnavailable, "", "%s", problem)
}

// callFailed returns the error for a call. The kubelet's message is quoted and shortened.
func (q query) callFailed(err error) error {
	st := status.Convert(err)
	message := diag.Quote(st.Message(), 256)
	switch st.Code() {
	case codes.DeadlineExceeded:
		return q.newError(context.DeadlineExceeded, "", "no answer in time")
	case codes.Canceled:
		return q.newError(context.Canceled, "", "canceled")
	case codes.Unavailable:
		return q.newError(errdefs.ErrUnavailable, "is the kubelet restarting? the next attempt connects again", "the kubelet ended the connection before it answered")
	case codes.PermissionDenied, codes.Unauthenticated:
		return q.newError(errdefs.ErrPermissionDenied, "", "the kubelet refuses: %s", message)
	case codes.ResourceExhausted:
		if isTooLarge(err) {
			return q.newError(errdefs.ErrResourceExhausted, "", "the answer is larger than %d MiB, more than a node's pods and devices need", maxAnswer>>20)
		}
		return q.newError(errdefs.ErrResourceExhausted, "the kubelet answers 100 requests per second to all its clients together", "the kubelet refuses: %s", message)
	}
	return q.newError(errdefs.ErrUnknown, "", "the kubelet refuses: %s %s", st.Code(), message)
}

// isTooLarge tells the client's own size limit from the kubelet's rate limit, which has the
// same code. grpc has no other mark for it.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "larger than max")
}
