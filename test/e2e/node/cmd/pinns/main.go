// SPDX-License-Identifier: Apache-2.0

// Command pinns creates the namespaces of a pod for CRI-O and mounts each on a file, so that it lasts without a
// process. It takes the place of CRI-O's own pinns, which is written in C, with the part of its interface that CRI-O
// uses:
//
//	pinns -d DIR -f NAME [--ipc|--uts|--net|--user][=host]... [-s KEY=VALUE]...
//	      [--uid-mapping=CONTAINER-HOST-SIZE@...] [--gid-mapping=...]
//
// A namespace is mounted on DIR/ipcns/NAME, DIR/utsns/NAME, and so on.
//
// A child process is cloned into the new namespaces. It sets the sysctls and waits for the end of its standard input
// while the parent mounts the namespaces from /proc.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pinns:", err)
		os.Exit(1)
	}
}

// childArg is the first argument of the child.
const childArg = "hold"

func run(args []string) error {
	if len(args) > 0 && args[0] == childArg {
		return hold(args[1:])
	}
	p := pod{namespaces: map[string]bool{}}
	f := flag.NewFlagSet("pinns", flag.ContinueOnError)
	f.StringVar(&p.dir, "d", "", "`directory` of the namespaces")
	f.StringVar(&p.name, "f", "", "`name` of the files")
	f.Func("s", "`sysctl` of the pod", func(s string) error { p.sysctls = append(p.sysctls, s); return nil })
	f.Func("uid-mapping", "mapping of users", mappings(&p.users))
	f.Func("gid-mapping", "mapping of groups", mappings(&p.groups))
	for kind := range cloneFlags() {
		f.BoolFunc(kind, "creates the namespace, or mounts the host's", func(s string) error {
			p.namespaces[kind] = s != "host"
			return nil
		})
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	return p.pin()
}

// cloneFlags returns the flags of clone(2) by kind of namespace, which is also its name in /proc/PID/ns.
func cloneFlags() map[string]uintptr {
	return map[string]uintptr{"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "net": unix.CLONE_NEWNET,
		"user": unix.CLONE_NEWUSER}
}

// mappings returns a function that parses "CONTAINER-HOST-SIZE@..." into maps.
func mappings(maps *[]syscall.SysProcIDMap) func(string) error {
	return func(text string) error {
		for part := range strings.SplitSeq(strings.TrimSuffix(text, "@"), "@") {
			var m syscall.SysProcIDMap
			if _, err := fmt.Sscanf(part, "%d-%d-%d", &m.ContainerID, &m.HostID, &m.Size); err != nil {
				return fmt.Errorf("mapping %q: %w", part, err)
			}
			*maps = append(*maps, m)
		}
		return nil
	}
}

// pod has the namespaces that CRI-O requests.
type pod struct {
	dir, name     string
	namespaces    map[string]bool // by kind; true for a new one, false for the host's
	sysctls       []string
	users, groups []syscall.SysProcIDMap
}

// pin creates the namespaces and mounts them.
func (p pod) pin() error {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for kind, isNew := range p.namespaces {
		if isNew {
			attr.Cloneflags |= cloneFlags()[kind]
		}
	}
	if attr.Cloneflags&unix.CLONE_NEWUSER != 0 {
		attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = p.users, p.groups, true
		attr.Credential = &syscall.Credential{}
	}
	child := exec.Command("/proc/self/exe", append([]string{childArg}, p.sysctls...)...)
	child.SysProcAttr, child.Stderr = attr, os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("create namespaces: %w", err)
	}
	_, err = bufio.NewReader(stdout).ReadString('\n')
	for kind, isNew := range p.namespaces {
		owner := "self"
		if isNew {
			owner = fmt.Sprint(child.Process.Pid)
		}
		err = errors.Join(err, p.mount(filepath.Join("/proc", owner, "ns", kind), kind))
	}
	return errors.Join(err, stdin.Close(), child.Wait())
}

// mount mounts a namespace on its file, which CRI-O has created where the pod has mappings.
func (p pod) mount(source, kind string) error {
	target := filepath.Join(p.dir, kind+"ns", p.name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// hold sets the sysctls of its namespaces, reports that it is ready, and waits until the parent has mounted the
// namespaces.
func hold(sysctls []string) error {
	for _, s := range sysctls {
		key, value, _ := strings.Cut(s, "=")
		file := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", key, err)
		}
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
