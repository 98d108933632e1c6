// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// injection is a test case: files of spec directories in rising priority, an OCI spec, and the
// requested devices.
type injection struct {
	dirs    []map[string]object
	spec    *rspec.Spec
	devices []string
}

// host has the host files that generated device nodes refer to.
type host struct{ fifo, regular string }

func newHost(tb testing.TB) host {
	tb.Helper()
	dir := tb.TempDir()
	h := host{fifo: filepath.Join(dir, "fifo"), regular: filepath.Join(dir, "regular")}
	if err := unix.Mkfifo(h.fifo, 0o640); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(h.regular, nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	return h
}

// injection generates a test case. It leaves out the differences that
// docs/contributing/conformance-cdi.md lists, each where a comment says so.
// TestInjectDifferences has these.
func (g generator) injection(h host) injection {
	var in injection
	var names []string
	for dir := range 1 + g.IntN(2) {
		files := map[string]object{}
		for file := range 1 + g.IntN(3) {
			spec := object{"cdiVersion": "1.1.0", "kind": pick(g, "v.com/c", "w.org/gpu")}
			var devices []any
			for d := range 1 + g.IntN(3) {
				name := fmt.Sprintf("d%d%d%d", dir, file, d)
				switch g.IntN(8) {
				case 0:
					// Directories may declare the same name: the higher priority wins. Left out: a name that is
					// declared twice in a lower directory and once in a higher one (upstream has neither).
					name = fmt.Sprintf("over%d%d", file, d)
				case 1:
					name = fmt.Sprintf("twice%d%d", dir, d)
				}
				devices = append(devices, object{"name": name, "containerEdits": g.injectEdits(h)})
				names = append(names, spec["kind"].(string)+"="+name)
			}
			spec["devices"] = devices
			if g.chance(40) {
				spec["containerEdits"] = g.injectEdits(h)
			}
			files[fmt.Sprintf("f%d.json", file)] = spec
		}
		in.dirs = append(in.dirs, files)
	}
	if g.chance(10) {
		names = append(names, "v.com/c=missing", "x.org/c=d")
	}
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	seen := map[string]bool{}
	for _, n := range names[:1+g.IntN(min(4, len(names)))] {
		if !seen[n] { // left out: a device that is named twice
			seen[n] = true
			in.devices = append(in.devices, n)
		}
	}
	in.spec = g.ociSpec()
	return in
}

func (g generator) injectEdits(h host) object {
	e := object{}
	for len(e) == 0 || g.chance(60) {
		switch g.IntN(7) {
		case 0:
			var list []any
			for range 1 + g.IntN(3) {
				list = append(list, pick(g, "A", "B", "PATH", "AB")+"="+pick(g, "", "x", "y=z", "<&>"))
			}
			e["env"] = list
		case 1:
			var list []any
			for range 1 + g.IntN(3) {
				list = append(list, g.deviceNode(h))
			}
			e["deviceNodes"] = list
		case 2:
			// Left out: conflicts with a device of the OCI spec, in which upstream keeps the last. A host
			// device always has the same name.
			n := g.IntN(4)
			e["netDevices"] = []any{object{"hostInterfaceName": fmt.Sprint("eth", n), "name": fmt.Sprint("net", n)}}
		case 3:
			var list []any
			for range 1 + g.IntN(2) {
				hook := object{"hookName": pick(g, "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"), "path": pick(g, "/bin/true", "/bin/x")}
				g.maybe(hook, "args", []any{"true", "-x"})
				g.maybe(hook, "env", []any{"A=b"})
				g.maybe(hook, "timeout", 1, 30)
				list = append(list, hook)
			}
			e["hooks"] = list
		case 4:
			var list []any
			for range 1 + g.IntN(3) {
				// Left out: two spellings of one destination, and /var/run.
				m := object{"hostPath": pick(g, "/srv/a", "/srv/b"), "containerPath": pick(g, "/", "/data", "/opt/a", "/opt/a/b", "/usr/lib/x/y.so", "/proc", "/dev/shm")}
				g.maybe(m, "options", []any{"ro", "bind"}, []any{"rbind"}, []any{"bind", "idmap"}, []any{"mode=755"})
				g.maybe(m, "type", "bind", "none", "tmpfs")
				list = append(list, m)
			}
			e["mounts"] = list
		case 5:
			rdt := object{"closID": pick(g, "gold", "silver", "/")}
			g.maybe(rdt, "l3CacheSchema", "L3:0=ff")
			g.maybe(rdt, "memBwSchema", "MB:0=50")
			g.maybe(rdt, "schemata", []any{"L3:0=f", "MB:0=9"})
			g.maybe(rdt, "enableMonitoring", true)
			e["intelRdt"] = rdt
		case 6:
			e["additionalGids"] = pick(g, []any{0, 7}, []any{44}, []any{44, 7, 44})
		}
	}
	return e
}

// deviceNode describes a node more or less fully. Left out: two nodes of other
// numbers at one path (upstream keeps the cgroup rule of both), the permissions
// "none" (upstream makes a rule without access), symlinks to nodes, and type "u" without
// numbers (upstream refuses both).
func (g generator) deviceNode(h host) object {
	n := object{}
	full := func(path, host, typ string, major, minor int) {
		n["path"] = path
		switch g.IntN(4) {
		case 0: // in full, with or without a node on the host
			n["type"], n["major"], n["minor"] = typ, major, minor
			g.maybe(n, "hostPath", host, "/dev/no/such/node", h.regular)
		case 1:
			n["hostPath"], n["type"] = host, typ
		case 2:
			n["hostPath"], n["major"], n["minor"] = host, major, minor
		case 3:
			n["hostPath"] = host
		}
	}
	switch g.IntN(10) {
	case 0, 1, 2:
		full("/dev/jf0", "/dev/null", "c", 1, 3)
	case 3, 4:
		full("/dev/jf1", "/dev/zero", "c", 1, 5)
	case 5:
		full("/dev/sub/same", "/dev/zero", "c", 1, 5)
	case 6:
		n = object{"path": "/dev/full"}
	case 7:
		n = object{"path": "/dev/block", "type": "b", "major": 7, "minor": 2}
	case 8:
		n = object{"path": "/dev/fifo", "hostPath": h.fifo}
		g.maybe(n, "type", "p")
	case 9:
		if g.chance(70) {
			n = object{"path": "/dev/u", "type": "u", "major": 1, "minor": 7}
			break
		}
		// A node that cannot be created.
		n = pick(g, object{"path": "/dev/no/such/node"}, object{"path": "/dev/x", "hostPath": h.regular},
			object{"path": "/dev/x", "hostPath": "/dev/null", "type": "b"}, object{"path": "/dev/x", "hostPath": h.fifo, "type": "c"})
	}
	g.maybe(n, "fileMode", 0o666, 0o7777, 0)
	if n["type"] == "c" && g.chance(20) {
		n["fileMode"] = unix.S_IFCHR | 0o660
	}
	g.maybe(n, "permissions", "r", "rw", "rwm", "mr", "w")
	g.maybe(n, "uid", 0, 1000)
	g.maybe(n, "gid", 0, 44)
	return n
}

// ociSpec generates the OCI spec of a container.
func (g generator) ociSpec() *rspec.Spec {
	s := &rspec.Spec{Version: "1.2.0"}
	if g.chance(85) {
		s.Process = &rspec.Process{Cwd: "/", User: rspec.User{UID: pick[uint32](g, 0, 0, 1000), GID: pick[uint32](g, 0, 0, 100)}}
		for range g.IntN(5) {
			s.Process.Env = append(s.Process.Env, pick(g, "A=1", "A=2", "PATH=/bin", "TERM", "B", "ABC=1"))
		}
		if g.chance(30) {
			s.Process.User.AdditionalGids = []uint32{5, 44}
		}
	}
	// Left out: several mounts, or nodes, at one place.
	for _, m := range []rspec.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}, {Destination: "/dev/shm", Type: "tmpfs", Source: "shm"}, {Destination: "/data", Source: "/old", Options: []string{"rbind"}}, {Destination: "/opt/a/b/c", Source: "/old"}, {Destination: "/", Source: "/old"}} {
		if g.chance(50) {
			s.Mounts = append(s.Mounts, m)
		}
	}
	g.Shuffle(len(s.Mounts), func(i, j int) { s.Mounts[i], s.Mounts[j] = s.Mounts[j], s.Mounts[i] })
	if g.chance(30) {
		// Left out: a hook that a spec file has as well.
		s.Hooks = &rspec.Hooks{CreateRuntime: []rspec.Hook{{Path: "/bin/own"}}, Poststop: []rspec.Hook{{Path: "/bin/own", Args: []string{"x"}}}}
	}
	if g.chance(80) {
		s.Linux = g.ociLinux()
	}
	return s
}

func (g generator) ociLinux() *rspec.Linux {
	l := &rspec.Linux{Namespaces: []rspec.LinuxNamespace{{Type: rspec.MountNamespace}}}
	if g.chance(30) {
		l.Namespaces = append(l.Namespaces, rspec.LinuxNamespace{Type: rspec.UserNamespace})
		for _, list := range []*[]rspec.LinuxIDMapping{&l.UIDMappings, &l.GIDMappings} {
			if g.chance(75) {
				*list = []rspec.LinuxIDMapping{{HostID: 100000, Size: 65536}}
			}
		}
	}
	for _, d := range []rspec.LinuxDevice{{Path: "/dev/jf0", Type: "c", Major: 9, Minor: 9}, {Path: "/dev/tty1", Type: "c", Major: 4, Minor: 1}, {Path: "/dev/full", Type: "c", Major: 1, Minor: 7}, {Path: "/dev/fifo", Type: "p"}} {
		if g.chance(40) {
			l.Devices = append(l.Devices, d)
		}
	}
	major, minor := int64(1), int64(3)
	if g.chance(50) {
		l.Resources = &rspec.LinuxResources{}
		for range g.IntN(4) {
			l.Resources.Devices = append(l.Resources.Devices, pick(g, rspec.LinuxDeviceCgroup{Access: "rwm"},
				rspec.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major, Minor: &minor, Access: pick(g, "rw", "rwm")},
				rspec.LinuxDeviceCgroup{Allow: true, Type: "a", Access: "rwm"}))
		}
	}
	if g.chance(20) {
		l.NetDevices = map[string]rspec.LinuxNetDevice{"eth1": {Name: "old"}, "eth9": {}}
	}
	if g.chance(20) {
		l.IntelRdt = &rspec.LinuxIntelRdt{ClosID: "own", L3CacheSchema: "L3:0=1"}
	}
	return l
}

// write creates the spec directories below a new directory and returns their paths.
func (in *injection) write(tb testing.TB, base string) []string {
	tb.Helper()
	var dirs []string
	for i, files := range in.dirs {
		dir := filepath.Join(base, fmt.Sprint(i))
		if err := os.RemoveAll(dir); err != nil {
			tb.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		for name, spec := range files {
			text, err := json.Marshal(spec)
			if err != nil {
				tb.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				tb.Fatal(err)
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// byteSource is a random source whose values are bytes of a fuzzer.
type byteSource struct {
	bytes []byte
	more  *rand.PCG
}

func (s *byteSource) Uint64() uint64 {
	v := s.more.Uint64()
	if len(s.bytes) > 0 {
		v = v>>8 | uint64(s.bytes[0])<<56
		s.bytes = s.bytes[1:]
	}
	return v
}
