// SPDX-License-Identifier: Apache-2.0

package netavark

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// options are the options of a network (podman network create --opt). As attach.Source, they name
// and locate keys in the errors of package attach.
type options map[string]string

// knownOptions are the options of a network, sorted.
var knownOptions = []string{"bridge", "configFile", "mode", "mtu", "path", "queues", "rate", "role", "timeout", "type",
	"vlan", "vswitch"}

// Name returns the option of a key. Package attach prefixes the keys of the device with "device.".
func (o options) Name(key string) string { return strings.TrimPrefix(key, "device.") }

// Place returns the prefix of a message about an option.
func (o options) Place(key string) string {
	if slices.Contains(knownOptions, o.Name(key)) {
		return "option "
	}
	return ""
}

// Value returns the value of an option.
func (o options) Value(key string) string {
	if v, ok := o[o.Name(key)]; ok {
		return diag.Quote(v)
	}
	return "nothing"
}

// invalid returns the error for the value of an option.
func (o options) invalid(key, rule string) error {
	return invalid("option "+key, o[key], rule)
}

// invalid returns the error for a value. rule is a noun phrase after "must be".
func invalid(key, value, rule string) error {
	return fmt.Errorf("%s: invalid value %s: must be %s", key, diag.Quote(value), rule)
}

// read copies the options to an attachment, and checks them.
func (o options) read(t *attach.Attachment) error {
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if slices.Contains(knownOptions, key) {
			continue
		}
		return fmt.Errorf("unknown option %s: must be one of %s%s", diag.Quote(key),
			strings.Join(knownOptions, ", "), diag.Suggest(key, knownOptions...))
	}
	if err := o.readDevice(t); err != nil {
		return err
	}
	return o.readPort(t)
}

// readDevice reads the options of the device. Podman passes every option as a text.
func (o options) readDevice(t *attach.Attachment) error {
	t.Device = attach.Device{Kind: deviceinfo.Type(o["type"]), Field: map[string]string{}}
	if !t.Device.IsSocket() {
		return o.invalid("type", `"vhost-user" or "memif": networks of Podman have sockets; `+
			`request other devices by the annotation devices.jackfield.dev`)
	}
	for _, key := range []string{"mode", "role", "path"} {
		value, isSet := o[key]
		switch {
		case !isSet:
		case !slices.Contains(attach.DeviceKeys[t.Device.Kind], key):
			return fmt.Errorf("option %s: a device of type %s has no such option, but %s", key, t.Device.Kind,
				strings.Join(attach.DeviceKeys[t.Device.Kind], " and "))
		default:
			t.Device.Field[key] = value
		}
	}
	return t.CheckDevice()
}

// readPort reads the options of the port on a vswitch.
func (o options) readPort(t *attach.Attachment) error {
	t.Port.Vswitch, t.Port.Bridge = o["vswitch"], o["bridge"]
	for _, key := range []string{"mtu", "vlan", "queues", "rate", "timeout"} {
		if o[key] == "" {
			continue
		}
		if rule := t.SetValue(key, o[key]); rule != "" {
			return o.invalid(key, rule)
		}
	}
	return t.CheckPort()
}
