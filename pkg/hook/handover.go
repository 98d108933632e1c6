// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Full is the command of the program `jackfield` that is this hook with a client of
// the kubelet.
const Full = "oci-hook"

// handOver has `jackfield`, beside this program, go on with a pod's container where
// there is a kubelet, which alone says whose a device is. A gRPC client takes longer
// to get ready than all that this program does, and most containers with a hook are
// Podman's. It returns without an error where there is nobody to ask.
func (h *hook) handOver(s *subject) error {
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
	fail := func(err error) error {
		return fmt.Errorf("ask the kubelet whose devices are: run %q, which has to be beside jackfield-hook: %w", program, err)
	}
	fd, err := unix.MemfdCreate("state", 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	for text := h.input; len(text) > 0; {
		n, err := unix.Write(fd, text)
		if err != nil {
			return fail(err)
		}
		text = text[n:]
	}
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return fail(err)
	}
	if err := unix.Dup3(fd, 0, 0); err != nil {
		return fail(err)
	}
	args := []string{"jackfield", Full}
	for _, f := range []struct{ flag, value string }{{"--config", h.configFile}, {"--log", h.logTo}, {"--container-id", h.containerID}} {
		if f.value != "" {
			args = append(args, f.flag, f.value)
		}
	}
	args = append(args, string(h.stage))
	if strings.ContainsRune(strings.Join(args, ""), 0) {
		return fail(errdefs.ErrInvalidArgument)
	}
	return fail(unix.Exec(program, args, []string{}))
}
