// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/attach"
	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/internal/quantity"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// readDevice reads the key device: the keys of the device-info map of its type.
func (c *conf) readDevice(v value) error {
	list, err := c.members(v)
	if err != nil {
		return err
	}
	kind, err := c.decodeString(v.member("type"))
	if err != nil {
		return err
	}
	c.Device = attach.Device{Kind: deviceinfo.Type(kind), Field: map[string]string{}}
	known, ok := attach.DeviceKeys[c.Device.Kind]
	if !ok {
		return c.invalid("device.type", attach.Quote(kind), "pci, vdpa, vhost-user or memif")
	}
	for _, m := range list {
		switch {
		case m.Key == "type":
		case m.Key == "version":
			if s, err := c.decodeString(m); err != nil || s != deviceinfo.Version && s != "1.0.0" {
				return c.invalidValue(m, "a version of the Device Information Specification, 1.0.0 or 1.1.0")
			}
		case !slices.Contains(known, m.Key):
			return c.unsupported("device-info of type "+kind+" has "+strings.Join(known, ", ")+attach.DidYouMean(m.Key, known), m.path)
		default:
			if c.Device.Field[m.Key], err = c.decodeString(m); err != nil {
				return err
			}
		}
	}
	return attach.CheckDevice(&attach.Host{Source: c}, &c.Attachment)
}

// readPortKey reads a key of the port.
func (c *conf) readPortKey(v value) (err error) {
	if v.isEmpty() {
		return nil
	}
	p := &c.Port
	p.Given = v.path
	switch v.path {
	case "vswitch":
		p.Vswitch, err = c.decodeString(v)
	case "bridge":
		p.Bridge, err = c.decodeString(v)
	case "mtu":
		p.MTU, err = c.decodePortNumber(v)
	case "vlan":
		p.VLAN, err = c.decodePortNumber(v)
	case "queues":
		p.Queues, err = c.decodePortNumber(v)
	case "rate":
		ok := v.Kind == jsontree.String || v.Kind == jsontree.Number
		if ok {
			p.Rate, ok = quantity.ParseRate(v.Text)
		}
		if !ok {
			err = c.invalidValue(v, strings.TrimPrefix(quantity.RateRule, "want "))
		}
	}
	return err
}

func (c *conf) decodePortNumber(v value) (int, error) {
	bounds := attach.PortBounds[v.path]
	n, err := strconv.Atoi(v.Text)
	if v.Kind != jsontree.Number || err != nil || n < bounds[0] || n > bounds[1] {
		return 0, c.invalidValue(v, fmt.Sprintf("a number from %d to %d", bounds[0], bounds[1]))
	}
	return n, nil
}

// readTimeout reads the time limit of an operation.
func (c *conf) readTimeout(v value) error {
	text, err := c.decodeString(v)
	if err != nil || text == "" {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < attach.MinTimeout || d > attach.MaxTimeout {
		return c.invalidValue(v, fmt.Sprintf("a duration from %v to %v, as \"10s\"", attach.MinTimeout, attach.MaxTimeout))
	}
	c.Timeout = d
	return nil
}

// configDir has the files that configFile can name. A user of Kubernetes may write network configurations, and
// can have files of root elsewhere on the host, such as in volumes.
const configDir = "/etc"

func (c *conf) readConfigFile(v value) error {
	file, err := c.decodeString(v)
	if err != nil || file == "" {
		return err
	}
	if hostfs.CheckPath(file) != nil || path.Clean(file) != file || !strings.HasPrefix(file, configDir+"/") {
		return c.invalidValue(v, "a clean path of a file below "+configDir)
	}
	c.ConfigFile = file
	return nil
}
