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

// Marshal is info as the content of a device-info file (§4): JSON indented by
// four spaces, with a newline at the end. The same info gives the same bytes:
// the keys of the specification in its order, then the unknown ones sorted. PCI
// addresses are written in lower case.
//
// The result is one that [Parse] accepts; what it would refuse is returned as
// [Diagnostics] without positions.
func Marshal(info *Info) ([]byte, error) { return ParseOptions{}.marshal(info) }

func (o ParseOptions) marshal(info *Info) ([]byte, error) {
	compact, err := o.compact(info)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(2 * len(compact))
	if err := json.Indent(&b, compact, "", "    "); err != nil {
		return nil, fmt.Errorf("marshal device-info: %w", err)
	}
	b.WriteByte('\n')
	if b.Len() > MaxSize {
		return nil, Diagnostics{tooLarge("", int64(b.Len()))}
	}
	return b.Bytes(), nil
}

// compact encodes info and reads the result back: what is written is under the
// very rules of what is read.
func (o ParseOptions) compact(info *Info) ([]byte, error) {
	if info == nil {
		return nil, Diagnostics{{Found: "no device-info (nil)", Rule: "a device-info map", Section: "3.1"}}
	}
	data := info.encode()
	canonical, err := o.Parse(data, "")
	var ds Diagnostics
	if errors.As(err, &ds) {
		for i := range ds {
			ds[i].Line, ds[i].Column = 0, 0
		}
		return nil, ds
	}
	if err != nil {
		return nil, err
	}
	return canonical.encode(), nil
}

// Validate is nil, or the [Diagnostics] that [Marshal] would return.
func (i *Info) Validate() error {
	_, err := ParseOptions{}.compact(i)
	return err
}

// MarshalJSON is [Marshal] without white space.
func (i Info) MarshalJSON() ([]byte, error) { return ParseOptions{}.compact(&i) }

// AppendJSON appends what MarshalJSON gives, unchecked: it is for an Info that
// [Parse] returned and of which only paths were changed, to valid ones.
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
	w := &writer{}
	w.open()
	w.text("type", string(i.Type), true)
	w.text("version", i.Version, true)
	if p := i.PCI; p != nil {
		w.key("pci")
		w.open()
		w.text("pci-address", p.PCIAddress, true)
		w.text("vhost-net", p.VhostNet, false)
		w.text("rdma-device", p.RDMADevice, false)
		w.text("pf-pci-address", p.PFPCIAddress, false)
		w.text("representor-device", p.RepresentorDevice, false)
		w.close(p.Extra)
	}
	if v := i.VDPA; v != nil {
		w.key("vdpa")
		w.open()
		w.text("parent-device", v.ParentDevice, true)
		w.text("driver", string(v.Driver), true)
		w.text("path", v.Path, false)
		w.text("pci-address", v.PCIAddress, false)
		w.text("pf-pci-address", v.PFPCIAddress, false)
		w.text("representor-device", v.RepresentorDevice, false)
		w.close(v.Extra)
	}
	if v := i.VhostUser; v != nil {
		w.key("vhost-user")
		w.open()
		w.text("mode", string(v.Mode), true)
		w.text("path", v.Path, true)
		w.close(v.Extra)
	}
	if m := i.Memif; m != nil {
		w.key("memif")
		w.open()
		w.text("role", string(m.Role), true)
		w.text("path", m.Path, true)
		w.text("mode", string(m.Mode), true)
		w.close(m.Extra)
	}
	w.close(i.Extra)
	return w.Bytes()
}

// writer writes nested maps. Strings go out as they are, so that what is not
// UTF-8 is found when the result is read back, and not replaced in silence.
type writer struct {
	bytes.Buffer
	first bool
}

func (w *writer) open() {
	w.WriteByte('{')
	w.first = true
}

func (w *writer) key(k string) {
	if !w.first {
		w.WriteByte(',')
	}
	w.first = false
	w.string(k)
	w.WriteByte(':')
}

func (w *writer) text(key, value string, required bool) {
	if value != "" || required {
		w.key(key)
		w.string(value)
	}
}

func (w *writer) close(extra map[string]json.RawMessage) {
	for _, k := range slices.Sorted(maps.Keys(extra)) {
		w.key(k)
		w.Write(extra[k])
	}
	w.WriteByte('}')
	w.first = false
}

func (w *writer) string(s string) {
	const hex = "0123456789abcdef"
	w.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			w.WriteByte('\\')
			w.WriteByte(c)
		case c < ' ':
			w.WriteString(`\u00`)
			w.WriteByte(hex[c>>4])
			w.WriteByte(hex[c&15])
		default:
			w.WriteByte(c)
		}
	}
	w.WriteByte('"')
}
