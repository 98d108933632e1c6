// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Values of linux/unix_diag.h and net/tcp_states.h.
const (
	unixDiagShowVFS  = 0x2 // UDIAG_SHOW_VFS
	unixDiagVFS      = 1   // UNIX_DIAG_VFS
	unixDiagReqSize  = 24
	unixDiagMsgSize  = 16
	stateEstablished = 1
	stateListen      = 10
)

// socketFile is a socket's file as the kernel's socket diagnostics name it.
type socketFile struct{ inode, device uint32 }

// FillPeers counts the connections of each socket. The kernel reports the sockets of this process's network
// namespace only, so a socket whose listener is in another one stays unknown.
func FillPeers(sockets []PlacedSocket) error {
	connections, err := countConnections()
	if err != nil {
		return fmt.Errorf("count connections of sockets: %w", err)
	}
	for i := range sockets {
		s := &sockets[i]
		device := unix.Major(s.Device)<<20 | unix.Minor(s.Device) // the kernel's own form
		if n, ok := connections[socketFile{uint32(s.Inode), device}]; ok && s.Inode != 0 {
			s.Peers = &n
		}
	}
	return nil
}

// countConnections returns the number of accepted connections of each socket file that a process has open.
func countConnections() (map[socketFile]int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	request := make([]byte, unix.NLMSG_HDRLEN+unixDiagReqSize)
	order := binary.NativeEndian
	order.PutUint32(request[0:], uint32(len(request)))
	order.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	order.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[unix.NLMSG_HDRLEN] = unix.AF_UNIX
	order.PutUint32(request[unix.NLMSG_HDRLEN+4:], 1<<stateEstablished|1<<stateListen)
	order.PutUint32(request[unix.NLMSG_HDRLEN+12:], unixDiagShowVFS)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("send", err)
	}
	connections := map[socketFile]int{}
	for answer := make([]byte, 64<<10); ; {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return nil, os.NewSyscallError("receive", err)
		}
		messages, err := syscall.ParseNetlinkMessage(answer[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return connections, nil
			case unix.NLMSG_ERROR:
				return nil, fmt.Errorf("the kernel has no diagnostics of UNIX sockets: %w", netlinkError(m.Data))
			case unix.SOCK_DIAG_BY_FAMILY:
				addConnection(connections, m.Data)
			}
		}
	}
}

// netlinkError returns the error number of an error message.
func netlinkError(data []byte) error {
	if len(data) < 4 {
		return unix.EPROTO
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(data)))
}

// addConnection counts one socket of an answer, by the attribute that has its file.
func addConnection(connections map[socketFile]int, data []byte) {
	order := binary.NativeEndian
	for attrs := data[min(unixDiagMsgSize, len(data)):]; len(attrs) >= unix.SizeofNlAttr; {
		size := int(order.Uint16(attrs))
		if size < unix.SizeofNlAttr || size > len(attrs) {
			return
		}
		if value := attrs[unix.SizeofNlAttr:size]; order.Uint16(attrs[2:]) == unixDiagVFS && len(value) >= 8 {
			n := 0
			if data[2] == stateEstablished {
				n = 1
			}
			connections[socketFile{order.Uint32(value), order.Uint32(value[4:])}] += n
			return
		}
		attrs = attrs[min((size+3)&^3, len(attrs)):]
	}
}
