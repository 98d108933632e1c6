// SPDX-License-Identifier: Apache-2.0

package vswitchdriver

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// CheckProgram returns the reason why a driver cannot execute its program on a host, or nil. A
// driver without a program has no error.
func CheckProgram(host hostfs.Root, v config.Vswitch) error {
	if v.Type != config.VswitchGrout {
		return nil
	}
	st, err := host.Stat(v.Grcli)
	switch {
	case errdefs.IsNotFound(err):
		return errdefs.ErrNotFound.WithMessage("there is no such file on this host")
	case err != nil:
		return hostfs.WithoutPath(err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("it is a %s, not a program",
			hostfs.TypeName(st.Mode)))
	case st.Mode&0o111 == 0:
		return errdefs.ErrPermissionDenied.WithMessage("the file is not executable")
	}
	err = trust.CheckProgram(host, v.Grcli)
	var fault *trust.Error
	if errors.As(err, &fault) {
		return errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf("found %s: %s", fault.Found, fault.Rule))
	}
	return err
}
