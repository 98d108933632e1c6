// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/quantity"
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
}

// portBounds are the least and the largest value of a port's numbers.
var portBounds = map[string][2]int{"mtu": {68, 65535}, "vlan": {1, 4094}, "queues": {1, 256}}

// SetPortValue sets the value of the key mtu, vlan, queues, rate or timeout from its text. want says what the value has
// to be if the text is invalid.
func (a *Attachment) SetPortValue(key, text string) (want string) {
	p := &a.Port
	switch key {
	case "rate":
		rate, ok := quantity.ParseRate(text)
		if !ok {
			return strings.TrimPrefix(quantity.RateRule, "want ")
		}
		p.Rate = rate
	case "timeout":
		d, err := time.ParseDuration(text)
		if err != nil || d < MinTimeout || d > MaxTimeout {
			return fmt.Sprintf("a duration from %v to %v, as \"10s\"", MinTimeout, MaxTimeout)
		}
		a.Timeout = d
	default:
		bounds := portBounds[key]
		n, err := strconv.Atoi(text)
		if err != nil || n < bounds[0] || n > bounds[1] {
			return fmt.Sprintf("a number from %d to %d", bounds[0], bounds[1])
		}
		*map[string]*int{"mtu": &p.MTU, "vlan": &p.VLAN, "queues": &p.Queues}[key] = n
	}
	return ""
}

// CheckPort checks what the keys of a port require of other keys.
func CheckPort(host *Host, attachment *Attachment) error {
	j := &job{Attachment: attachment, Host: host}
	p := &j.Port
	if p.Vswitch == "" {
		for _, f := range []struct {
			key   string
			given bool
		}{{"bridge", p.Bridge != ""}, {"mtu", p.MTU != 0}, {"vlan", p.VLAN != 0}, {"queues", p.Queues != 0}, {"rate", p.Rate != 0}} {
			if f.given {
				return j.invalid(f.key, j.Source.Value(f.key), "the key only together with vswitch, the name of a vswitch in the node's configuration")
			}
		}
		return nil
	}
	switch d := &j.Device; {
	case !d.IsSocket():
		return Unsupported(j.Source, "a port of a vswitch has a socket: device.type vhost-user or memif", "vswitch")
	case strings.ContainsAny(d.Field["path"], "/@"):
		return j.invalid("device.path", Quote(d.Field["path"]), "a file name together with vswitch: the port's socket is in a directory of the attachment")
	case d.Kind == deviceinfo.TypeMemif && d.Field["mode"] != "" && d.Field["mode"] != string(deviceinfo.MemifEthernet):
		return j.invalid("device.mode", Quote(d.Field["mode"]), "ethernet together with vswitch")
	}
	return nil
}
