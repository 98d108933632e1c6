// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Fault is what goes wrong with the reply to a message.
type Fault struct {
	// Retval is the reply's result, if it is not 0. The message has no effect.
	Retval int32
	// Silent leaves out the reply. Close closes the connection, before the reply or, with Reply, after its first frame.
	Silent, Close bool
	// Reply changes each frame of the reply, header included.
	Reply func(frame []byte) []byte
}

// Interface is an interface of VPP.
type Interface struct {
	Index              uint32
	Type               string // "vhost-user", "memif", "hardware", "sub" or "local"
	Name               string // empty for one that VPP chooses
	Sup, VLAN          uint32 // of a sub-interface
	Rewrite            uint32 // the VLAN tag rewrite
	Policer            string // applied to its input
	Tag                string
	Up                 bool
	MTU                uint32
	Bridge             uint32
	Socket             string
	Listens            bool
	MemifID, MemifSock uint32
	RxQueues           uint32
	listener           net.Listener
}

// Server is a VPP.
type Server struct {
	// Socket is the path of the API socket.
	Socket string
	// Root is the directory that the sockets' paths are below; empty: "/".
	Root string
	// Version is VPP's version.
	Version string
	// Without has the messages that this VPP does not know.
	Without []string

	tb       testing.TB
	defs     *definitions
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]uint64 // the client's process ID if it wants events
	ids      map[string]uint16
	names    map[uint16]string
	offset   uint16
	running  sync.WaitGroup

	interfaces map[uint32]*Interface
	bridges    map[uint32]string // tags
	policers   map[string]values
	sockets    map[uint32]string
	next       uint32
	socketID   uint32 // the last that VPP chose
	faults     map[string]Fault
	calls      []string
	dropped    []string
}

// Start starts a VPP with its API socket in dir, and ends it with the test. A message that the server could not read
// fails the test.
func Start(tb testing.TB, dir string) *Server {
	tb.Helper()
	defs, err := readDefinitions()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, defs: defs, Socket: filepath.Join(dir, "api.sock"), Version: "26.06-release", faults: map[string]Fault{}, offset: 100}
	s.Restart()
	tb.Cleanup(func() {
		s.Kill()
		if len(s.dropped) > 0 {
			tb.Errorf("VPP drops messages: %q", s.dropped)
		}
	})
	return s
}

// Restart starts VPP after Kill. It has no interfaces, and other numbers for its messages.
func (s *Server) Restart() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interfaces = map[uint32]*Interface{0: {Type: "local"}}
	s.policers = map[string]values{}
	s.bridges, s.sockets, s.next = map[uint32]string{}, map[uint32]string{0: "/run/vpp/memif.sock"}, 1
	s.socketID = 0
	s.ids, s.names, s.conns = map[string]uint16{}, map[uint16]string{}, map[net.Conn]uint64{}
	s.offset += 7
	for i, name := range slices.Sorted(maps.Keys(s.defs.Messages)) {
		if !slices.Contains(s.Without, name) {
			s.ids[name], s.names[s.offset+uint16(i)] = s.offset+uint16(i), name
		}
	}
	if err := os.RemoveAll(s.Socket); err != nil {
		s.tb.Fatal(err)
	}
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		s.tb.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := setBacklog(l.(*net.UnixListener), 5); err != nil {
		s.tb.Fatal(err)
	}
	s.listener = l
	s.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = 0
			s.mu.Unlock()
			s.running.Go(func() { s.serve(conn) })
		}
	})
}

// setBacklog sets the length of a listen queue.
func setBacklog(l *net.UnixListener, length int) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	err = raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), length) })
	return errors.Join(err, listenErr)
}

// Stop stops VPP as SIGSTOP does. Continue continues it.
func (s *Server) Stop() { s.mu.Lock() }

// Continue continues VPP after Stop.
func (s *Server) Continue() { s.mu.Unlock() }

// Kill ends VPP as a crash does: sockets stay behind.
func (s *Server) Kill() {
	s.mu.Lock()
	s.listener.Close()
	for conn := range s.conns {
		conn.Close()
	}
	for _, i := range s.interfaces {
		i.close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (i *Interface) close() {
	if i.listener != nil {
		i.listener.Close()
	}
}

// AddBridge creates a bridge domain.
func (s *Server) AddBridge(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bridges[id] = ""
}

// Bridges returns the tags of all bridge domains.
func (s *Server) Bridges() map[uint32]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.bridges)
}

// AddPolicer creates a policer as an administrator does.
func (s *Server) AddPolicer(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policers[name] = values{"name": name}
}

// Policers returns the rates of all policers in kbit/s.
func (s *Server) Policers() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	rates := map[string]uint64{}
	for name, p := range s.policers {
		rates[name], _ = p["cir"].(uint64)
	}
	return rates
}

// AddInterface creates an interface as an administrator does, and returns its index.
func (s *Server) AddInterface(i Interface) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.Index = s.next
	s.next++
	if i.Type == "memif" && i.MemifSock == 0 {
		i.MemifSock = 100 + i.Index
		s.sockets[i.MemifSock] = i.Socket
	}
	s.interfaces[i.Index] = &i
	return i.Index
}

// SetDown sets an interface down as an administrator does.
func (s *Server) SetDown(index uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interfaces[index].Up = false
	s.notify(values{"sw_if_index": uint64(index)})
}

// Delete deletes an interface as an administrator does.
func (s *Server) Delete(index uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(index)
}

// SetFault makes a message fail from now on.
func (s *Server) SetFault(message string, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[message] = f
}

// Interfaces returns all interfaces but local0, sorted by index.
func (s *Server) Interfaces() []Interface {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Interface
	for _, index := range slices.Sorted(maps.Keys(s.interfaces)) {
		if i := *s.interfaces[index]; i.Type != "local" {
			i.listener = nil
			list = append(list, i)
		}
	}
	return list
}

// MemifSockets returns the number of memif sockets but the default one.
func (s *Server) MemifSockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets) - 1
}

// Calls returns the messages that VPP got since the last call of Calls.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Connections returns the number of clients.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	for {
		var header [16]byte
		if _, err := io.ReadFull(conn, header[:]); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint32(header[8:]))
		if _, err := io.ReadFull(conn, message); err != nil {
			return
		}
		s.mu.Lock()
		frames, ok := s.handle(conn, message)
		s.mu.Unlock()
		if _, err := conn.Write(frames); err != nil || !ok {
			return
		}
	}
}

// handle carries a message out and returns the frames of the reply. It returns false to close the connection.
func (s *Server) handle(conn net.Conn, message []byte) (frames []byte, ok bool) {
	name := "sockclnt_create"
	if len(message) >= 2 {
		if id := binary.BigEndian.Uint16(message); id != 15 {
			name = s.names[id]
		}
	}
	request, err := s.defs.decode(s.defs.Messages[name].Fields, message)
	if err != nil {
		s.dropped = append(s.dropped, fmt.Sprintf("%s: %v", name, err))
		return nil, true
	}
	s.calls = append(s.calls, name)
	fault := s.faults[name]
	var replies []reply
	if fault.Retval != 0 {
		replies = []reply{{name + "_reply", values{"retval": int64(fault.Retval)}}}
	} else if replies, err = s.carryOut(conn, name, request); err != nil {
		s.dropped = append(s.dropped, fmt.Sprintf("%s: %v", name, err))
		return nil, true
	}
	if fault.Close && fault.Reply == nil {
		return nil, false
	}
	if fault.Silent {
		return nil, true
	}
	for _, r := range replies {
		frame, err := s.frame(r, request["context"])
		if err != nil {
			s.dropped = append(s.dropped, fmt.Sprintf("%s: %v", r.name, err))
			return nil, true
		}
		if fault.Reply != nil {
			frame = fault.Reply(frame)
		}
		frames = append(frames, frame...)
		if fault.Close {
			return frames, false
		}
	}
	return frames, true
}
