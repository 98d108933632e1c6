// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// The driver with a server of VPP's API is tested in test/vswitch/vpp. Here are tags and answers that are not VPP's.

func TestTagHoldsOwner(t *testing.T) {
	sandbox := strings.Repeat("0123456789abcdef", 4)
	for _, tc := range []struct {
		owner vswitch.Owner
		want  string
	}{
		{vswitch.Owner{ContainerID: sandbox, Interface: "net1"}, "jf/=ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8/net1"},
		{vswitch.Owner{ContainerID: sandbox, Interface: "fifteen-letters"}, ""},
		{vswitch.Owner{ContainerID: strings.ToUpper(sandbox[:32]), Interface: "net1"}, "jf/0123456789ABCDEF0123456789ABCDEF/net1"},
		{vswitch.Owner{ContainerID: "cnitool-77", Interface: "eth0"}, "jf/cnitool-77/eth0"},
	} {
		tag := formatTag(tc.owner)
		if tc.want != "" && tag != tc.want || len(tag) > maxTag {
			t.Errorf("formatTag(%+v) = %q of %d bytes, want %q", tc.owner, tag, len(tag), tc.want)
		}
		if got, ok := parseTag(tag); !ok || got != tc.owner {
			t.Errorf("parseTag(%q) = %+v, %v", tag, got, ok)
		}
	}
	for _, tag := range []string{"", "uplink", "jf/", "jf/a", "jf//net1", "jf/a/", "jf/=!/net1", "jf/=YQ/net1", "jackfield"} {
		if owner, ok := parseTag(tag); ok {
			t.Errorf("%q is the owner %+v", tag, owner)
		}
	}
}

func FuzzTag(f *testing.F) {
	f.Add("jf/cnitool-77/eth0")
	f.Add("jf/=ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8/net1")
	f.Fuzz(func(t *testing.T, tag string) {
		if owner, ok := parseTag(tag); ok && formatTag(owner) != tag {
			t.Errorf("%q is %+v, whose tag is %q", tag, owner, formatTag(owner))
		}
	})
}

// scripted is a connection on which VPP's side is written beforehand.
type scripted struct {
	net.Conn
	io.Reader
}

func (s scripted) Read(p []byte) (int, error) { return s.Reader.Read(p) }
func (scripted) Write(p []byte) (int, error)  { return len(p), nil }
func (scripted) SetDeadline(time.Time) error  { return nil }

// Whatever VPP sends, the client returns, without a panic and without more memory than the message bound.
func FuzzReplies(f *testing.F) {
	frame := func(message []byte) []byte {
		header := make([]byte, frameHeaderSize)
		binary.BigEndian.PutUint32(header[8:], uint32(len(message)))
		return append(header, message...)
	}
	// A table with two messages, and the reply to a ping.
	table := binary.BigEndian.AppendUint16(nil, idSockclntCreateReply)
	table = append(table, make([]byte, 4+4+4+4)...)
	table = append(table, 0, 2)
	for i, name := range []string{controlPing.request, controlPing.answer} {
		var entry [64]byte
		copy(entry[:], name)
		table = append(binary.BigEndian.AppendUint16(table, uint16(100+i)), entry[:]...)
	}
	ping := append([]byte{0, 101, 0, 0, 0, 1}, make([]byte, 12)...)
	f.Add(append(frame(table), frame(ping)...))
	f.Add(frame(table))
	f.Add(frame(nil))
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := &connection{conn: scripted{Reader: bytes.NewReader(stream)}}
		if c.create() != nil {
			return
		}
		// The rest of the stream is the answer to each call, whatever the table names.
		for _, e := range []exchange{controlPing, swInterfaceDump, bridgeDomainDump, memifSocketFilenameDump, memifDump, swInterfaceVhostUserDump} {
			for _, name := range []string{e.request, e.answer} {
				if _, ok := c.ids[name]; !ok {
					c.ids[name] = uint16(len(name))
					c.known[uint16(len(name))] = true
				}
			}
		}
		_ = c.call(controlPing, new(retvalReply))
		_, _ = c.readInventory()
	})
}
