// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// query is the pod and socket in every error of a request.
type query struct {
	wanted          string // the requested data, for messages
	namespace, name string
	socket          string
}

func (q query) newError(sentinel error, hint, format string, args ...any) error {
	return q.wrapDiagnostic(&diag.Diagnostic{Rule: fmt.Sprintf(format, args...), Hint: hint, Kind: sentinel})
}

// wrapDiagnostic adds the socket and the pod to a diagnostic.
func (q query) wrapDiagnostic(d *diag.Diagnostic) error {
	d.File = q.socket
	return fmt.Errorf("ask the kubelet for %s %q: %w", q.wanted, q.namespace+"/"+q.name, d)
}

// dialFailed returns the error for opening the socket file, and for connecting to it.
func (q query) dialFailed(err error) error {
	problem := diag.ErrorText(err)
	errno, ok := errors.AsType[unix.Errno](err)
	if ok {
		problem = errno.Error()
	}
	// The hint depends on why the socket cannot be opened: the kubelet is down, its directory is not mounted into
	// the pod, or this process lacks permissions.
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // the dialer's, which can precede the context's
		return q.newError(context.DeadlineExceeded, "", "no answer in time")
	case errno == unix.ECONNREFUSED:
		return q.newError(errdefs.ErrUnavailable, "is the kubelet running?", "nothing listens on the socket: %s",
			problem)
	case errdefs.IsNotFound(err):
		return q.newError(errdefs.ErrUnavailable, fmt.Sprintf("is the kubelet running, and its "+
			"%s directory mounted here?", path.Base(path.Dir(q.socket))), "%s", problem)
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
	message := diag.QuoteUpTo(st.Message(), diag.MaxExcerpt)
	// Codes of a temporary state become ErrUnavailable.
	switch st.Code() {
	case codes.DeadlineExceeded:
		return q.newError(context.DeadlineExceeded, "", "no answer in time")
	case codes.Canceled:
		return q.newError(context.Canceled, "", "canceled")
	case codes.Unavailable:
		return q.newError(errdefs.ErrUnavailable, "is the kubelet restarting? the next attempt connects again",
			"the kubelet ended the connection before it answered")
	case codes.FailedPrecondition:
		return q.newError(errdefs.ErrUnavailable, "the next attempt can succeed", "the kubelet is starting: %s", message)
	case codes.NotFound:
		return q.newError(errdefs.ErrNotFound, "", "the kubelet does not know the pod: %s", message)
	case codes.PermissionDenied, codes.Unauthenticated:
		return q.newError(errdefs.ErrPermissionDenied, "", "the kubelet refuses: %s", message)
	case codes.ResourceExhausted:
		if isTooLarge(err) {
			return q.newError(errdefs.ErrResourceExhausted,
				"a device plugin with fewer device IDs, such as one for each GiB of memory in place of one for "+
					"each MiB, makes it smaller",
				"the answer is larger than %d MiB, the most that this client and Multus read", maxAnswer>>20)
		}
		return q.newError(errdefs.ErrResourceExhausted,
			"the kubelet answers 100 requests per second to all its "+
				"clients together", "the kubelet refuses: %s", message)
	}
	return q.newError(errdefs.ErrUnknown, "", "the kubelet refuses: %s %s", st.Code(), message)
}

// isTooLarge distinguishes the client's own size limit from the kubelet's rate limit, which has the
// same code. grpc has no other mark for it.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted &&
		strings.Contains(status.Convert(err).Message(), "larger than max")
}
