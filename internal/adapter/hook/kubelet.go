// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// FullCommand is the command of the program jackfield that runs this hook together with a kubelet
// client.
const FullCommand = "oci-hook"

// execWithKubelet replaces this process with `jackfield oci-hook` for a container of a pod, if the
// node has a kubelet, because only the kubelet knows the container's allocated devices.
// jackfield-hook itself has no kubelet client: a gRPC client takes longer to start than all of
// jackfield-hook, and most containers with hooks are Podman's. Without a kubelet it returns nil.
func (h *hook) execWithKubelet(s *subject) error {
	socket := h.cfg.Kubelet.PodResourcesSocket
	if !s.ofPod || h.env.Kubelet != nil || socket == "" {
		return nil
	}
	if _, err := h.host.Stat(socket); errdefs.IsNotFound(err) {
		return nil
	}
	self, err := h.env.Self()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "jackfield")
	return fmt.Errorf("query the kubelet for allocated devices: run %q, which must be installed beside "+
		"jackfield-hook: %w", program, h.execProgram(program))
}

// execProgram replaces this process with program, with the same standard input and flags. It
// returns only on error.
func (h *hook) execProgram(program string) error {
	if err := h.restoreStdin(); err != nil {
		return err
	}
	args := h.commandLine([]string{"jackfield", FullCommand}, h.containerID, h.stage)
	if strings.ContainsRune(strings.Join(args, ""), 0) {
		return errdefs.ErrInvalidArgument
	}
	return unix.Exec(program, args, []string{})
}

// restoreStdin replaces standard input with a file of the input that this process has already read.
func (h *hook) restoreStdin() error {
	fd, err := unix.MemfdCreate("state", 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "state")
	defer f.Close()
	if _, err := f.WriteAt(h.input, 0); err != nil {
		return err
	}
	return unix.Dup3(fd, 0, 0)
}
