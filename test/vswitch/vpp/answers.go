// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
)

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
	case "show_version":
		return []reply{{"show_version_reply", values{"program": "vpe", "version": s.Version}}}, nil
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
				return created(-79, other.Index), nil
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
		if id == 0xffffffff {
			s.socketID = s.socketID*1664525 + 1013904223 // the same numbers after each start
			id = s.socketID
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
		s.notify(values{"sw_if_index": uint64(i.Index), "flags": uint64(number("flags") & 1)})
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
		if i == nil {
			return result(-2), nil
		}
		i.Bridge = 0
		if !truth("enable") {
			i.Rewrite, i.Policer = 0, ""
			return result(0), nil
		}
		i.Bridge = number("bd_id")
		s.bridges[i.Bridge] += "" // VPP creates a bridge domain that is missing
		return result(0), nil
	}
	return s.carryOutVLANAndRate(name, request)
}

// carryOutVLANAndRate does what VPP does for the messages of bridge domains, sub-interfaces and policers.
func (s *Server) carryOutVLANAndRate(name string, request values) ([]reply, error) {
	number := func(field string) uint32 { n, _ := request[field].(uint64); return uint32(n) }
	truth := func(field string) bool { b, _ := request[field].(bool); return b }
	words := func(field string) string { w, _ := request[field].(string); return w }
	result := func(retval int, fields values) []reply {
		if fields == nil {
			fields = values{}
		}
		fields["retval"] = int64(retval)
		return []reply{{name + "_reply", fields}}
	}
	i := s.interfaces[number("sw_if_index")]
	switch name {
	case "bridge_domain_add_del_v2":
		id := number("bd_id")
		_, exists := s.bridges[id]
		switch {
		case truth("is_add") && exists:
			return result(-119, nil), nil
		case truth("is_add"):
			s.bridges[id] = words("bd_tag")
		case !exists:
			return result(-6, nil), nil
		default:
			for _, member := range s.interfaces {
				if member.Bridge == id && id != 0 {
					return result(-120, nil), nil
				}
			}
			delete(s.bridges, id)
		}
		return result(0, values{"bd_id": uint64(id)}), nil
	case "create_vlan_subif":
		if i == nil {
			return result(-2, nil), nil
		}
		for _, other := range s.interfaces {
			if other.Type == "sub" && other.Sup == i.Index && other.VLAN == number("vlan_id") {
				return result(-56, nil), nil
			}
		}
		sub := &Interface{Type: "sub", Index: s.next, Sup: i.Index, VLAN: number("vlan_id"), Name: fmt.Sprintf("%s.%d", i.Name, number("vlan_id"))}
		s.next++
		s.interfaces[sub.Index] = sub
		return result(0, values{"sw_if_index": uint64(sub.Index)}), nil
	case "delete_subif":
		if i == nil || i.Type != "sub" {
			return result(-2, nil), nil
		}
		s.remove(i.Index)
		return result(0, nil), nil
	case "l2_interface_vlan_tag_rewrite":
		if i == nil {
			return result(-2, nil), nil
		}
		if operation := number("vtr_op"); operation == 3 && i.Type != "sub" {
			return result(-72, nil), nil
		}
		i.Rewrite = number("vtr_op")
		return result(0, nil), nil
	case "policer_add_del":
		_, exists := s.policers[words("name")]
		switch {
		case truth("is_add") && exists:
			return result(-81, nil), nil
		case truth("is_add"):
			s.policers[words("name")] = request
		case !exists:
			return result(-6, nil), nil
		default:
			delete(s.policers, words("name"))
		}
		return result(0, nil), nil
	case "policer_input":
		if _, exists := s.policers[words("name")]; !exists {
			return result(-6, nil), nil
		}
		if i == nil {
			return result(-2, nil), nil
		}
		i.Policer = ""
		if truth("apply") {
			i.Policer = words("name")
		}
		return result(0, nil), nil
	case "policer_dump":
		var list []reply
		for _, name := range slices.Sorted(maps.Keys(s.policers)) {
			p := s.policers[name]
			list = append(list, reply{"policer_details", values{"name": name, "cir": p["cir"], "cb": p["cb"]}})
		}
		return list, nil
	}
	return nil, fmt.Errorf("the server does not know the message")
}

// create adds an interface, and its socket if VPP listens.
func (s *Server) create(i *Interface) int {
	if i.Listens {
		network, failed := "unix", -12
		if i.Type == "memif" {
			network, failed = "unixpacket", -14
			if fi, err := os.Lstat(s.Root + i.Socket); err == nil && fi.Mode()&os.ModeSocket == 0 {
				return failed
			}
		}
		// VPP removes the socket of another process, too.
		if err := os.Remove(s.Root + i.Socket); err != nil && !os.IsNotExist(err) {
			return failed
		}
		l, err := net.Listen(network, s.Root+i.Socket)
		if err != nil {
			return failed
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		i.listener = l
	}
	i.MTU, i.Index = 9000, s.next
	s.next++
	s.interfaces[i.Index] = i
	return 0
}

// remove deletes an interface.
func (s *Server) remove(index uint32) {
	s.interfaces[index].close()
	delete(s.interfaces, index)
	s.notify(values{"sw_if_index": uint64(index), "deleted": true})
}

// notify sends an event of an interface to the clients that want events.
func (s *Server) notify(event values) {
	for conn, pid := range s.conns {
		if pid == 0 {
			continue
		}
		event["pid"] = pid
		frame, err := s.frame(reply{"sw_interface_event", event}, nil)
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
		name, kind, sup := cmp.Or(i.Name, fmt.Sprint(i.Type, index)), uint64(0), index
		if i.Type == "sub" {
			kind, sup = 1, i.Sup
		}
		list = append(list, reply{"sw_interface_details", values{"sw_if_index": uint64(index), "flags": flags, "interface_name": name,
			"tag": i.Tag, "mtu": []any{uint64(i.MTU)}, "interface_dev_type": i.Type, "type": kind, "sup_sw_if_index": uint64(sup),
			"sub_id": uint64(i.VLAN), "sub_outer_vlan_id": uint64(i.VLAN), "vtr_op": uint64(i.Rewrite)}})
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
		for id, tag := range s.bridges {
			var members []any
			for index, i := range s.interfaces {
				if i.Bridge == id && id != 0 && i.Type != "local" {
					members = append(members, values{"sw_if_index": uint64(index)})
				}
			}
			list = append(list, reply{details, values{"bd_id": uint64(id), "bd_tag": tag, "n_sw_ifs": uint64(len(members)), "sw_if_details": members}})
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
