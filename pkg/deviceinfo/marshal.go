// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Marshal returns info as the content of a device-info file (§4): JSON indented by four
// spaces, with a newline at the end. The same info gives the same bytes: the keys of the
// specification in its order, then the unknown ones sorted. PCI addresses are written in
// lower case.
//
// [Parse] accepts the result. The error is [FieldErrors] without positions.
func Marshal(info *Info) ([]byte, error) { return marshalOptions{}.marshal(info) }

// marshalOptions make the rules for a written map stricter than those for a map that is read.
type marshalOptions struct {
	// requireVDPAPath refuses a vDPA device of the virtio driver without a "path" (§3.1.4.3).
	// sriov-network-device-plugin omits it there, so readers only warn. For the vhost driver a missing path is always
	// an error.
	requireVDPAPath bool
}

func (o marshalOptions) marshal(info *Info) ([]byte, error) {
	compact, err := o.marshalCompact(info)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "    "); err != nil {
		return nil, fmt.Errorf("marshal device-info: %w", err)
	}
	b.WriteByte('\n')
	if b.Len() > MaxSize {
		return nil, tooLarge("", int64(b.Len()), MaxSize)
	}
	return b.Bytes(), nil
}

// marshalCompact encodes info and parses the result, so that the rules for reading hold
// for writing.
func (o marshalOptions) marshalCompact(info *Info) ([]byte, error) {
	if info == nil {
		return nil, FieldErrors{{Found: "nil", Rule: "must be a device-info map", Section: inSection("3.1")}}
	}
	canonical, err := o.parse(info.encode(), "")
	if err != nil {
		faults, _ := errors.AsType[FieldErrors](err)
		for _, d := range faults {
			d.Line, d.Column = 0, 0
		}
		return nil, err
	}
	return canonical.encode(), nil
}

// Validate returns nil, or the [FieldErrors] that [Marshal] would return.
func (i *Info) Validate() error {
	_, err := marshalOptions{}.marshalCompact(i)
	return err
}

// MarshalJSON is [Marshal] without white space.
func (i Info) MarshalJSON() ([]byte, error) { return marshalOptions{}.marshalCompact(&i) }

// AppendJSON appends the result of MarshalJSON to dst without validation. It is for an
// Info that [Parse] returned and in which only paths were replaced by valid ones.
func (i *Info) AppendJSON(dst []byte) []byte { return append(dst, i.encode()...) }

// UnmarshalJSON is [Parse].
func (i *Info) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(data, "")
	if err != nil {
		return err
	}
	*i = *parsed
	return nil
}

func (i *Info) encode() []byte {
	var o objectEncoder
	o.addRequired("type", string(i.Type), "version", i.Version)
	if p := i.PCI; p != nil {
		var m objectEncoder
		m.addRequired("pci-address", p.PCIAddress)
		m.addOptional("vhost-net", p.VhostNet, "rdma-device", p.RDMADevice,
			"pf-pci-address", p.PFPCIAddress, "representor-device", p.RepresentorDevice)
		o.addMember("pci", m.closeObject(p.Extra))
	}
	if v := i.VDPA; v != nil {
		var m objectEncoder
		m.addRequired("parent-device", v.ParentDevice, "driver", string(v.Driver))
		m.addOptional("path", v.Path, "pci-address", v.PCIAddress,
			"pf-pci-address", v.PFPCIAddress, "representor-device", v.RepresentorDevice)
		o.addMember("vdpa", m.closeObject(v.Extra))
	}
	if v := i.VhostUser; v != nil {
		var m objectEncoder
		m.addRequired("mode", string(v.Mode), "path", v.Path)
		o.addMember("vhost-user", m.closeObject(v.Extra))
	}
	if f := i.Memif; f != nil {
		var m objectEncoder
		m.addRequired("role", string(f.Role), "path", f.Path, "mode", string(f.Mode))
		o.addMember("memif", m.closeObject(f.Extra))
	}
	return o.closeObject(i.Extra)
}

// objectEncoder writes a JSON object with its keys in the order of the calls, which
// encoding/json cannot do together with unknown keys.
type objectEncoder struct{ text []byte }

func (e *objectEncoder) addMember(key string, value []byte) {
	e.addKey(key)
	e.text = append(e.text, value...)
}

func (e *objectEncoder) addKey(key string) {
	e.text = append(appendString(append(e.text, ','), key), ':')
}

// addRequired adds pairs of a key and its value.
func (e *objectEncoder) addRequired(pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		e.addKey(pair[0])
		e.text = appendString(e.text, pair[1])
	}
}

// addOptional adds those pairs that have a value.
func (e *objectEncoder) addOptional(pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			e.addRequired(pair...)
		}
	}
}

// closeObject adds the unknown keys and returns the object.
func (e *objectEncoder) closeObject(extra map[string]json.RawMessage) []byte {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		e.addMember(key, extra[key])
	}
	if len(e.text) == 0 {
		return []byte("{}")
	}
	e.text[0] = '{'
	return append(e.text, '}')
}

// appendString appends a JSON string. Invalid UTF-8 is kept, so that the parser refuses it;
// encoding/json would replace it.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
