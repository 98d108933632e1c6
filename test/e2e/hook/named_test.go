// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"strings"
	"testing"
)

// nameSocket gives the socket of recreateSocket a name.
func (h *host) nameSocket() {
	h.t.Helper()
	h.write("config.yaml", strings.Replace(h.read("config.yaml"), "sockets: {", "sockets: {named: {agent: {path: "+h.path("sock/port0/vhost.sock")+", at: /srv/agent/agent.sock}}, ", 1))
}

// A container gets a named socket through the hook, also in a user namespace, and has it again after its server
// re-created it with its directory.
func TestContainerGetsNamedSocketAgain(t *testing.T) {
	asks := strings.ReplaceAll(asksTwice, "/var/run/jackfield/net/net1/vhost.sock", "/srv/agent/agent.sock")
	request := map[string]string{"devices.jackfield.dev": "socket:agent"}
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		if runtime == h.kit.Crun {
			h.propagation = "rslave" // otherwise crun's mounts are private
		}
		h.nameSocket()
		h.startKeeper()
		s := h.recreateSocket(nil, "first")
		type result struct {
			out string
			err error
		}
		done := make(chan result, 1)
		go func() {
			out, err := h.run(runtime, container{id: "named-id", stages: []string{stage}, annotations: request, userNS: stage == "prestart", command: asks})
			done <- result{out, err}
		}()
		h.waitUntil("the container to connect", func() bool { return h.exists("rootfs/asked") || len(done) > 0 })
		s = h.recreateSocket(s, "second")
		r := <-done
		h.checkPrinted(r.out, r.err, "hello from first", "hello from second")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("podman", func(t *testing.T) {
		eachRuntime(t, func(t *testing.T, h *host, runtime string) {
			h.nameSocket()
			s := h.recreateSocket(nil, "first")
			out, err := h.podman(runtime, []string{h.hooksFile("hooks", "precreate")}, append([]string{"--annotation", "devices.jackfield.dev=socket:agent"},
				h.requestOptions("echo is $JACKFIELD_SOCKET_AGENT; sockclient connect /srv/agent/agent.sock")...)...)
			h.checkPrinted(out, err, "is /var/run/jackfield/named/agent/agent.sock", "hello from first")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}
