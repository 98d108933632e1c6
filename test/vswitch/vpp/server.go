// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
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
	Type               string // "vhost-user", "memif" or "local"
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
	bridges    map[uint32]bool
	sockets    map[uint32]string
	next       uint32
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
	s := &Server{tb: tb, defs: defs, Socket: filepath.Join(dir, "api.sock"), faults: map[string]Fault{}, offset: 100}
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
	s.bridges, s.sockets, s.next = map[uint32]bool{}, map[uint32]string{0: "/run/vpp/memif.sock"}, 1
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
	s.bridges[id] = true
}

// AddInterface creates an interface as an administrator does, and returns its index.
func (s *Server) AddInterface(i Interface) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.Index = s.next
	s.next++
	s.interfaces[i.Index] = &i
	return i.Index
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

type reply struct {
	name   string
	fields values
}

func (s *Server) frame(r reply, context any) ([]byte, error) {
	id := uint64(s.ids[r.name])
	if r.name == "sockclnt_create_reply" {
		id = 16
	}
	r.fields["_vl_msg_id"] = id
	if _, set := r.fields["context"]; !set {
		r.fields["context"] = context
	}
	body, err := s.defs.encode(s.defs.Messages[r.name].Fields, r.fields)
	if err != nil {
		return nil, err
	}
	header := make([]byte, 16)
	binary.BigEndian.PutUint32(header[8:], uint32(len(body)))
	return append(header, body...), nil
}

// carryOut does what VPP does for a message.
func (s *Server) carryOut(conn net.Conn, name string, request values) ([]reply, error) {
	number := func(field string) uint32 { n, _ := request[field].(uint64); return uint32(n) }
	truth := func(field string) bool { b, _ := request[field].(bool); return b }
	words := func(field string) string { w, _ := request[field].(string); return w }
	result := func(retval int) []reply { return []reply{{name + "_reply", values{"retval": int64(retval)}}} }
	created := func(retval int, index uint32) []reply {
		return []reply{{name + "_reply", values{"retval": int64(retval), "sw_if_index": uint64(index), "socket_id": uint64(index)}}}
	}
	i := s.interfaces[number("sw_if_index")]
	switch name {
	case "sockclnt_create":
		var table []any
		for _, name := range slices.Sorted(maps.Keys(s.ids)) {
			table = append(table, values{"index": uint64(s.ids[name]), "name": s.defs.tableName(name)})
		}
		return []reply{{"sockclnt_create_reply", values{"index": uint64(7), "count": uint64(len(table)), "message_table": table}}}, nil
	case "control_ping":
		return result(0), nil
	case "want_interface_events":
		s.conns[conn] = uint64(number("pid"))
		return result(0), nil
	case "sw_interface_dump":
		return s.dumpInterfaces(), nil
	case "sw_interface_vhost_user_dump", "memif_dump", "memif_socket_filename_dump", "bridge_domain_dump":
		return s.dumpOthers(name), nil
	case "create_vhost_user_if_v2":
		for _, other := range s.interfaces {
			if other.Type == "vhost-user" && other.Socket == words("sock_filename") {
				return created(-79, 0), nil
			}
		}
		i := Interface{Type: "vhost-user", Socket: words("sock_filename"), Listens: truth("is_server"), Tag: words("tag")}
		return created(s.create(&i), i.Index), nil
	case "delete_vhost_user_if":
		if i == nil || i.Type != "vhost-user" {
			return result(-2), nil
		}
		if i.Listens {
			os.Remove(s.Root + i.Socket)
		}
		s.remove(i.Index)
		return result(0), nil
	case "memif_socket_filename_add_del_v2":
		id := number("socket_id")
		if !truth("is_add") {
			if _, ok := s.sockets[id]; !ok || id == 0 {
				return created(-73, 0), nil
			}
			for _, i := range s.interfaces {
				if i.Type == "memif" && i.MemifSock == id {
					return created(-74, 0), nil
				}
			}
			delete(s.sockets, id)
			return created(0, id), nil
		}
		if fi, err := os.Stat(filepath.Dir(s.Root + words("socket_filename"))); err != nil || !fi.IsDir() {
			return created(-73, 0), nil
		}
		if id == 0xffffffff {
			id = s.next
			s.next++
		}
		s.sockets[id] = words("socket_filename")
		return created(0, id), nil
	case "memif_create_v2":
		file, ok := s.sockets[number("socket_id")]
		if !ok {
			return created(-73, 0), nil
		}
		i := Interface{Type: "memif", Socket: file, Listens: number("role") == 0, MemifID: number("id"), MemifSock: number("socket_id"), RxQueues: max(number("rx_queues"), 1)}
		return created(s.create(&i), i.Index), nil
	case "memif_delete":
		if i == nil || i.Type != "memif" {
			return result(-2), nil
		}
		s.remove(i.Index)
		return result(0), nil
	case "sw_interface_tag_add_del":
		if i == nil {
			return result(-2), nil
		}
		i.Tag = words("tag")
		return result(0), nil
	case "sw_interface_set_flags":
		if i == nil {
			return result(-2), nil
		}
		i.Up = number("flags")&1 != 0
		return result(0), nil
	case "sw_interface_set_mtu":
		if i == nil {
			return result(-2), nil
		}
		mtu, _ := request["mtu"].([]any)
		i.MTU = uint32(mtu[0].(uint64))
		return result(0), nil
	case "sw_interface_set_l2_bridge":
		i := s.interfaces[number("rx_sw_if_index")]
		if i == nil || !truth("enable") {
			return result(-2), nil
		}
		i.Bridge = number("bd_id")
		s.bridges[i.Bridge] = true // VPP creates what is missing
		return result(0), nil
	}
	return nil, fmt.Errorf("the server does not know the message")
}

// create adds an interface, and its socket if VPP listens.
func (s *Server) create(i *Interface) int {
	if i.Listens {
		if err := os.Remove(s.Root + i.Socket); err != nil && !os.IsNotExist(err) {
			return -12
		}
		network := "unix"
		if i.Type == "memif" {
			network = "unixpacket"
		}
		l, err := net.Listen(network, s.Root+i.Socket)
		if err != nil {
			return -12
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		i.listener = l
	}
	i.MTU, i.Index = 9000, s.next
	s.next++
	s.interfaces[i.Index] = i
	return 0
}

// remove deletes an interface, and tells the clients that want events.
func (s *Server) remove(index uint32) {
	s.interfaces[index].close()
	delete(s.interfaces, index)
	for conn, pid := range s.conns {
		if pid == 0 {
			continue
		}
		frame, err := s.frame(reply{"sw_interface_event", values{"pid": pid, "sw_if_index": uint64(index), "deleted": true}}, nil)
		if err != nil {
			s.tb.Error(err)
		}
		_, _ = conn.Write(frame)
	}
}

func (s *Server) dumpInterfaces() []reply {
	var list []reply
	for _, index := range slices.Sorted(maps.Keys(s.interfaces)) {
		i := s.interfaces[index]
		flags := uint64(0)
		if i.Up {
			flags = 3
		}
		list = append(list, reply{"sw_interface_details", values{"sw_if_index": uint64(index), "flags": flags, "interface_name": fmt.Sprint(i.Type, index),
			"tag": i.Tag, "mtu": []any{uint64(i.MTU)}, "interface_dev_type": i.Type}})
	}
	return list
}

func (s *Server) dumpOthers(name string) []reply {
	details := strings.TrimSuffix(name, "_dump") + "_details"
	var list []reply
	switch name {
	case "memif_socket_filename_dump":
		for id, file := range s.sockets {
			list = append(list, reply{details, values{"socket_id": uint64(id), "socket_filename": file}})
		}
	case "bridge_domain_dump":
		for id := range s.bridges {
			var members []any
			for index, i := range s.interfaces {
				if i.Bridge == id && i.Type != "local" {
					members = append(members, values{"sw_if_index": uint64(index)})
				}
			}
			list = append(list, reply{details, values{"bd_id": uint64(id), "n_sw_ifs": uint64(len(members)), "sw_if_details": members}})
		}
	default:
		for index, i := range s.interfaces {
			role := uint64(1)
			if i.Listens {
				role = 0
			}
			if name == "memif_dump" && i.Type == "memif" || name == "sw_interface_vhost_user_dump" && i.Type == "vhost-user" {
				list = append(list, reply{details, values{"sw_if_index": uint64(index), "is_server": i.Listens, "sock_filename": i.Socket,
					"id": uint64(i.MemifID), "role": role, "socket_id": uint64(i.MemifSock), "if_name": fmt.Sprint("memif", index)}})
			}
		}
	}
	return list
}
