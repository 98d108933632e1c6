// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/attach"
	"github.com/jackfield/jackfield/internal/jsontree"
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

func (c *conf) readPortName(v value) error {
	to := &c.Port.Vswitch
	if v.path == "bridge" {
		to = &c.Port.Bridge
	}
	return c.decode(v, to, "a string")
}

// readPortValue reads a number of the port, its rate or the time limit.
func (c *conf) readPortValue(v value) error {
	if v.isEmpty() {
		return nil
	}
	text := "" // invalid for each key
	if v.Kind == jsontree.Number && v.path != "timeout" || v.Kind == jsontree.String && (v.path == "rate" || v.path == "timeout") {
		text = v.Text
	}
	if want := c.SetPortValue(v.path, text); want != "" {
		return c.invalidValue(v, want)
	}
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
