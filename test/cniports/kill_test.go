// SPDX-License-Identifier: Apache-2.0

package cniports

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// killer is between the plugin and the database. It kills the plugin when a number of pieces of data, in both
// directions, has arrived, before it passes on the last one.
type killer struct {
	left    atomic.Int32
	victim  atomic.Pointer[os.Process]
	started chan struct{} // closed when victim is set
}

func (k *killer) serve(l net.Listener, database string) {
	for {
		plugin, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", database)
		if err != nil {
			plugin.Close()
			continue
		}
		var group sync.WaitGroup
		group.Go(func() { k.pass(server, plugin) })
		group.Go(func() { k.pass(plugin, server) })
		go func() {
			group.Wait()
			plugin.Close()
			server.Close()
		}()
	}
}

func (k *killer) pass(to, from net.Conn) {
	defer to.(*net.UnixConn).CloseWrite()
	data := make([]byte, 1<<20)
	for {
		n, err := from.Read(data)
		if n > 0 && k.left.Add(-1) == 0 {
			<-k.started
			_ = k.victim.Load().Signal(syscall.SIGKILL)
		}
		if _, writeErr := to.Write(data[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// runUntil runs the plugin and kills it at a piece of data. It reports whether the plugin was killed.
func (n *node) runUntil(at int, environ []string, conf string) bool {
	n.t.Helper()
	n.configure(strings.Replace(nodeConfig, "/db.sock", "/proxy.sock", 1))
	defer n.configure(nodeConfig)
	l, err := net.Listen("unix", filepath.Join(n.s.Dir, "proxy.sock"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer l.Close()
	k := &killer{started: make(chan struct{})}
	k.left.Store(int32(at))
	go k.serve(l, n.s.Endpoint())
	cmd := n.start(environ, conf)
	k.victim.Store(cmd.Process)
	close(k.started)
	err = cmd.Wait()
	if err == nil {
		return false
	}
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		n.t.Fatalf("piece %d: %v: %s", at, err, cmd.Stdout)
	}
	return true
}

// Wherever an ADD or a DEL was killed while it talked to the vswitch, DEL or GC leaves nothing.
func TestKilledWhileItTalksToSwitch(t *testing.T) {
	n := newNode(t)
	for name, undo := range map[string]func(){
		"DEL": func() { n.mustRun(environ("DEL", "c1"), conf(server)) },
		"GC":  func() { n.mustRun(environ("GC", ""), conf(server+`, "cni.dev/valid-attachments": []`)) },
	} {
		for _, command := range []string{"ADD", "DEL"} {
			for at := 1; ; at++ {
				if command == "DEL" {
					n.mustRun(environ("ADD", "c1"), conf(server))
				}
				if !n.runUntil(at, environ(command, "c1"), conf(server)) {
					if at < 4 {
						t.Fatalf("%s exchanges %d pieces of data only", command, at-1)
					}
					n.mustRun(environ("DEL", "c1"), conf(server))
					break
				}
				undo()
				n.checkNothingLeft(command + " killed, then " + name)
			}
		}
	}
}
