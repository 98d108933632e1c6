// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// ParseOptions choose where a reader is stricter than nodes in the field allow.
// The zero value is what [Parse] uses.
type ParseOptions struct {
	// RequireVDPAPath refuses a vDPA device of the virtio driver without a
	// "path", as §3.1.4.3 has it. sriov-network-device-plugin omits it there, so
	// by default that is a warning. For the vhost driver a missing path is
	// always an error.
	RequireVDPAPath bool
}

// Parse reads one device-info map (§3, §4); file is used in messages only. The
// error is [Diagnostics] with every finding, each of which is an
// errdefs.ErrInvalidArgument.
//
// Unknown keys are tolerated and kept. Refused are: a known key in another
// case, a key twice in one map, anything after the map, wrong types, missing
// required keys, values that the specification does not allow, paths that are
// not absolute and clean, socket paths longer than [MaxSocketPath], sources
// longer than [MaxSize] or nested deeper than [MaxDepth], and whatever is not
// JSON in UTF-8 without a byte order mark. PCI addresses are returned in lower
// case.
func Parse(data []byte, file string) (*Info, error) {
	return ParseOptions{}.Parse(data, file)
}

// Parse is [Parse] with these options.
func (o ParseOptions) Parse(data []byte, file string) (*Info, error) {
	if len(data) > MaxSize {
		return nil, Diagnostics{tooLarge(file, int64(len(data)))}
	}
	src := string(data)
	c := &collector{}
	root := scan(src, "4", kindMap, c)
	k := checker{collector: c, src: src, opts: o}
	info := k.info(root, nil)
	if err := c.err(file, src); err != nil {
		return nil, err
	}
	info.Warnings = diagnostics(c.warns, file, src)
	return info, nil
}

func tooLarge(file string, size int64) Diagnostic {
	return Diagnostic{File: file, Found: fmt.Sprintf("%d bytes", size), Rule: fmt.Sprintf("at most %d bytes", MaxSize)}
}

// ReadFile reads the device-info file at a host path, following symlinks inside
// host. A file that does not exist is errdefs.ErrNotFound.
func ReadFile(host hostfs.Root, path string) (*Info, error) {
	data, err := host.ReadFile(path, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read device-info file %q: %w", path, err)
	}
	return Parse(data, path)
}

// checker holds the rules of §3 against a scanned source.
type checker struct {
	*collector
	src  string
	opts ParseOptions
}

// object is a map under the rules, with the keys the specification knows in it.
type object struct {
	*checker
	node  *node
	path  *keyPath
	known []string
}

// object prepares n for lookups; ok is false when it is not a map (reported).
func (k *checker) object(n *node, path *keyPath, section string, known ...string) (object, bool) {
	o := object{checker: k, node: n, path: path, known: known}
	if n.kind != kindMap {
		k.wrongType(n, path, "a map", section)
		return o, false
	}
	for _, m := range n.members {
		if want, wrong := o.otherCase(m.key); wrong {
			k.add(finding{off: m.start, key: path.child(m.key).String(), found: k.source(m.start, m.end),
				rule: fmt.Sprintf("the key %q", want), section: section, hint: "keys are in lower case"})
		}
	}
	return o, true
}

// otherCase is the known key that key is, but for its case.
func (o object) otherCase(key string) (want string, wrong bool) {
	if slices.Contains(o.known, key) {
		return "", false
	}
	for _, want := range o.known {
		if strings.EqualFold(key, want) {
			return want, true
		}
	}
	return "", false
}

// get finds the value of key. A key in the wrong case, reported already, counts.
func (o object) get(key string) *node {
	for _, m := range o.node.members {
		if strings.EqualFold(m.key, key) {
			return m.value
		}
	}
	return nil
}

// text is the value of a key of type string. rule describes the value, check
// says what is wrong with it. "" is returned for a missing or wrong value.
func (o object) text(key string, required bool, section, rule string, check func(string) (hint string, ok bool)) string {
	n := o.get(key)
	if n == nil {
		if required {
			o.missing(key, o.node.start, section, rule)
		}
		return ""
	}
	if n.kind != kindString {
		o.wrongType(n, o.path.child(key), rule, section)
		return ""
	}
	hint, ok := check(n.text)
	if !ok {
		if n.text == "" && !required {
			hint = "omit the key where it does not apply"
		}
		o.add(finding{off: n.start, key: o.path.child(key).String(), found: o.source(n.start, n.end), rule: rule, section: section, hint: hint})
		return ""
	}
	return n.text
}

func (o object) missing(key string, off int, section, rule string) {
	if o.node.partial {
		return
	}
	o.add(finding{off: off, key: o.path.child(key).String(), rule: rule, section: section, hint: o.nearMiss(key)})
}

// nearMiss looks for a key that may have been meant as key: pciAddress,
// pci_address.
func (o object) nearMiss(key string) string {
	squeeze := strings.NewReplacer("-", "", "_", "", ".", "", " ", "")
	for _, m := range o.node.members {
		if slices.Contains(o.known, m.key) {
			continue
		}
		if strings.EqualFold(squeeze.Replace(m.key), squeeze.Replace(key)) {
			return fmt.Sprintf("rename %s to %q", o.source(m.start, m.end), key)
		}
	}
	return ""
}

func (k *checker) wrongType(n *node, path *keyPath, want, section string) {
	if n.kind == kindBad {
		return
	}
	found := n.kind.String()
	if n.kind != kindMap && n.kind != kindList && n.kind != kindNull {
		found += " " + k.source(n.start, n.end)
	}
	k.add(finding{off: n.start, key: path.String(), found: found, rule: want, section: section})
}

func (k *checker) source(start, end int) string { return excerpt(k.src[start:end]) }

// extra are the members that the specification does not know.
func (o object) extra() map[string]json.RawMessage {
	var extra map[string]json.RawMessage
	for _, m := range o.node.members {
		if slices.Contains(o.known, m.key) || m.value.kind == kindBad {
			continue
		}
		var b bytes.Buffer
		if json.Compact(&b, []byte(o.src[m.value.start:m.value.end])) != nil {
			continue // a mistake the scanner has reported
		}
		if extra == nil {
			extra = map[string]json.RawMessage{}
		}
		extra[m.key] = b.Bytes()
	}
	return extra
}
