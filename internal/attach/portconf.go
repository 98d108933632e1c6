// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"strings"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// PortRequest is the network's request for a port on a vswitch. Zero values leave the choice to the node's
// configuration, and then to the vswitch.
type PortRequest struct {
	Vswitch string // name in the node's configuration; "" for no port
	Bridge  string
	MTU     int
	VLAN    int
	Queues  int
	Rate    uint64 // bits a second
	Given   string // a key of the port that the configuration has
}

// PortBounds are the least and the largest value of a port's numbers.
var PortBounds = map[string][2]int{"mtu": {68, 65535}, "vlan": {1, 4094}, "queues": {1, 256}}

// CheckPort checks what the keys of a port require of other keys.
func CheckPort(host *Host, attachment *Attachment) error {
	j := &job{Attachment: attachment, Host: host}
	p := &j.Port
	switch d := &j.Device; {
	case p.Given == "":
		return nil
	case p.Vswitch == "":
		return j.invalid(p.Given, j.Source.Value(p.Given), "the key only together with vswitch, the name of a vswitch in the node's configuration")
	case !d.IsSocket():
		return Unsupported(j.Source, "a port of a vswitch has a socket: device.type vhost-user or memif", "vswitch")
	case strings.ContainsAny(d.Field["path"], "/@"):
		return j.invalid("device.path", Quote(d.Field["path"]), "a file name together with vswitch: the port's socket is in a directory of the attachment")
	case d.Kind == deviceinfo.TypeMemif && d.Field["mode"] != "" && d.Field["mode"] != string(deviceinfo.MemifEthernet):
		return j.invalid("device.mode", Quote(d.Field["mode"]), "ethernet together with vswitch")
	}
	return nil
}
