// SPDX-License-Identifier: Apache-2.0

// Command demo shows Jackfield at work: a pod requests a CDI device and has two network attachments
// with sockets. It gets all three and uses them.
//
// As root on Debian it runs a private, unmodified containerd. Elsewhere it runs the runtime's side of
// NRI in this process, with the same plugin and protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
	"github.com/jackfield/jackfield/test/vswitch"
)

// limit is how long the demonstration itself may take, downloads apart.
const limit = 4 * time.Minute

func main() {
	if jail.Outside() {
		if why := notReal(); why != nil {
			os.Exit(finish(os.Stdout, embedded(os.Stdout, why)))
		}
	}
	os.Exit(jail.Run(prepare, func() int {
		return finish(os.Stdout, withContext(func(ctx context.Context) error { return onContainerd(ctx, os.Stdout) }))
	}))
}

// finish prints the last line.
func finish(w io.Writer, err error) int {
	if err != nil {
		fmt.Fprintf(w, "\ndemo: failed: %v\n", err)
		return 1
	}
	fmt.Fprintln(w, "\ndemo: ok")
	return 0
}

func withContext(f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// notReal returns why no real containerd can run here, or nil.
func notReal() error {
	if os.Getenv("JACKFIELD_DEMO") == "embedded" {
		return errors.New("JACKFIELD_DEMO=embedded asks for it")
	}
	if ok, why := parts.Debian(); !ok {
		return errors.New(why)
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; it is needed to download containerd", tool)
		}
	}
	return jail.Possible()
}

func prepare() ([]string, error) {
	kit, err := node.Prepare(context.Background(), func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}, node.V2)
	if err != nil {
		return nil, err
	}
	return kit.Env()
}

// The node's files and names, the same for both runtimes. Paths are host paths.
const (
	configYAML = `sockets: {roots: [/var/run/vsw]}
policy:
  rules:
    - name: fast-path-tenants
      for:   {namespaces: ["fast-*"]}
      allow:
        cdi:     ["acme.com/nic=*"]
        sockets: ["/var/run/vsw/**"]
`
	cdiFile = "/etc/cdi/acme.json"
	cdiJSON = `{
  "cdiVersion": "0.6.0",
  "kind": "acme.com/nic",
  "devices": [{
    "name": "nic0",
    "containerEdits": {
      "env": ["ACME_NIC=nic0"],
      "deviceNodes": [{"path": "/dev/acme0", %s}]
    }
  }]
}
`
	namespace, podName = "fast-lane", "router"
	deviceRequest      = "acme.com/nic=nic0"
	networks           = "vhost-net,memif-net"
	devinfoDir         = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	vhostSocket        = "/run/vsw/port1/vhost.sock"
	memifSocket        = "/run/vsw/port2/memif.sock"
	vhostInfo          = `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/var/run/vsw/port1/vhost.sock"}}`
	memifInfo          = `{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "mode": "ethernet", "path": "/var/run/vsw/port2/memif.sock"}}`
)

// greeting is what the vswitch answers on a port.
func greeting(socket string) string { return vswitch.Greeting("the vswitch, port " + socket) }

func devinfoFile(nad, sandbox, iface string) string {
	return fmt.Sprintf("%s/%s-%s-%s_%s", devinfoDir, namespace, nad, sandbox, iface)
}

func annotations() map[string]string {
	return map[string]string{"devices.jackfield.dev": deviceRequest, "k8s.v1.cni.cncf.io/networks": networks}
}

// heading starts a part of the screen.
func heading(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "\n── "+format+"\n", args...)
}

// indent prints text two columns in.
func indent(w io.Writer, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Fprint(w, "  ", line)
	}
	fmt.Fprintln(w)
}

func scene(w io.Writer) {
	heading(w, "the node")
	indent(w, fmt.Sprintf("CDI device    %-28s %s\nvswitch       %-28s vhost-user, created by the host\nvswitch       %-28s memif, created by the host\npolicy rule   %-28s namespaces fast-*",
		deviceRequest, cdiFile, vhostSocket, memifSocket, "fast-path-tenants"))
	heading(w, "the pod: no volume, no privilege")
	indent(w, fmt.Sprintf("namespace: %s\nannotations:\n  devices.jackfield.dev: %s\n  k8s.v1.cni.cncf.io/networks: %s", namespace, deviceRequest, networks))
}
