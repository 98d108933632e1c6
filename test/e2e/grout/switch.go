// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// Switch is a grout that runs until the test ends.
type Switch struct {
	// Socket is the path of its API socket.
	Socket string
	// Grcli is a program that runs its client.
	Grcli string
	// OnCrash, if set, is called by Run when grout has ended by a fault of its own. It does not return.
	OnCrash func()

	tb      testing.TB
	command []string
	log     string
	run     *node.Process
}

// Interface is an interface as grout has it.
type Interface struct {
	ID          int      `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Type        string   `json:"type"`
	Flags       []string `json:"flags"`
	Mode        string   `json:"mode"`
	Domain      string   `json:"domain"`
	MTU         int      `json:"mtu"`
	Devargs     string   `json:"devargs"`
	Queues      int      `json:"n_rxq"`
}

// Start starts a grout with its API socket in dir.
func Start(tb testing.TB, dir string) *Switch {
	tb.Helper()
	dirs := load(tb)
	root := tb.TempDir()
	s := &Switch{tb: tb, Socket: filepath.Join(dir, "grout.sock"), Grcli: filepath.Join(root, "grcli"), log: filepath.Join(root, "grout.log")}
	// One directory with all libraries, for the loader.
	for _, pkg := range dirs {
		for _, pattern := range []string{"usr/lib/*-linux-gnu/*.so*", "usr/lib/*-linux-gnu/dpdk/pmds-*/*.so.*", "usr/lib64/*.so*", "usr/bin/gr*"} {
			found, err := filepath.Glob(filepath.Join(pkg, pattern))
			if err != nil {
				tb.Fatal(err)
			}
			for _, file := range found {
				name := filepath.Base(file)
				if name == "grcli" || name == "grout" {
					name += ".bin"
				}
				if err := os.Symlink(file, filepath.Join(root, name)); err != nil && !os.IsExist(err) {
					tb.Fatal(err)
				}
			}
		}
	}
	loaders, err := filepath.Glob(filepath.Join(root, "ld-linux*.so.*"))
	if err != nil || len(loaders) != 1 {
		tb.Fatalf("found %d loaders: %v", len(loaders), err)
	}
	// grout looks for drivers where its package installs them. These are loaded before it starts.
	drivers, err := filepath.Glob(filepath.Join(root, "librte_*_*.so.26"))
	if err != nil || len(drivers) == 0 {
		tb.Fatalf("found no DPDK drivers: %v", err)
	}
	loader := []string{loaders[0], "--library-path", root}
	script := "#!/bin/sh\nexec " + strings.Join(loader, " ") + " " + filepath.Join(root, "grcli.bin") + ` "$@"` + "\n"
	if err := os.WriteFile(s.Grcli, []byte(script), 0o755); err != nil {
		tb.Fatal(err)
	}
	s.command = append(loader, "--preload", strings.Join(drivers, " "), filepath.Join(root, "grout.bin"), "-t", "-s", s.Socket, "-M", "127.0.0.1:0")
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			text, _ := os.ReadFile(s.log)
			tb.Logf("grout printed:\n%s", node.Tail(string(text), 40))
		}
	})
	s.Restart()
	return s
}

// Restart starts grout again after Kill, and returns when its API responds.
func (s *Switch) Restart() {
	s.tb.Helper()
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	var err error
	if s.run, err = node.StartProcess(cmd, s.log); err != nil {
		s.tb.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := s.grcli("interface", "show")
		if err == nil {
			return
		}
		select {
		case <-s.run.Done():
			s.tb.Fatalf("grout ended:\n%s", node.Tail(s.run.Log(), 20))
		default:
		}
		if time.Now().After(end) {
			s.tb.Fatalf("grout does not answer: %v: %s\n%s", err, out, node.Tail(s.run.Log(), 20))
		}
	}
}

// Kill ends grout as a crash does.
func (s *Switch) Kill() {
	if s.run != nil {
		s.run.Signal(unix.SIGCONT)
		s.run.Kill()
	}
}

// crashed reports whether grout ended by a fault of its own.
func (s *Switch) crashed() bool {
	select {
	case <-s.run.Done():
		return strings.Contains(s.run.Log(), "crash_handler: caught fatal signal")
	case <-time.After(time.Second):
		return false
	}
}

// Signal sends grout a signal.
func (s *Switch) Signal(sig unix.Signal) { s.run.Signal(sig) }

// Run runs a command of grcli and returns what it prints.
func (s *Switch) Run(args ...string) string {
	s.tb.Helper()
	out, err := s.grcli(args...)
	if err != nil {
		if s.crashed() && s.OnCrash != nil {
			s.OnCrash()
		}
		s.tb.Fatalf("grcli %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *Switch) grcli(args ...string) ([]byte, error) {
	cmd := exec.Command(s.Grcli, append([]string{"-s", s.Socket, "-j"}, args...)...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd.CombinedOutput()
}

// Interface returns the interface of a name, and false if there is none.
func (s *Switch) Interface(name string) (Interface, bool) {
	s.tb.Helper()
	out, err := s.grcli("interface", "show", "name", name)
	if err != nil && strings.Contains(string(out), "ENODEV") {
		return Interface{}, false
	}
	var i Interface
	if err := json.Unmarshal(out, &i); err != nil {
		s.tb.Fatalf("grcli prints %q: %v", out, err)
	}
	return i, true
}

// Ports returns the names of all ports.
func (s *Switch) Ports() []string {
	s.tb.Helper()
	var all []Interface
	if err := json.Unmarshal([]byte(s.Run("interface", "show", "type", "port")), &all); err != nil {
		s.tb.Fatal(err)
	}
	names := []string{}
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// String describes the switch in messages.
func (s *Switch) String() string { return fmt.Sprintf("grout at %s", s.Socket) }
