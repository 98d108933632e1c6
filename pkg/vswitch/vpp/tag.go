// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/jackfield/jackfield/pkg/vswitch"
)

const (
	// maxTag is what VPP stores of a tag, without the NUL.
	maxTag = 63
	// tagPrefix begins the tag of every interface of Jackfield's.
	tagPrefix = "jf/"
	// shortIDPrefix begins a container's ID of 32 bytes in base64. CNI's IDs do not begin with it.
	shortIDPrefix = "="
)

// formatTag returns the tag of an owner's interface: "jf/ID/IFNAME". The ID of a pod's sandbox, 64 hexadecimal digits,
// does not fit, and is written in base64.
func formatTag(o vswitch.Owner) string {
	id := o.ContainerID
	if raw, err := hex.DecodeString(id); err == nil && len(raw) == 32 && hex.EncodeToString(raw) == id {
		id = shortIDPrefix + base64.RawURLEncoding.EncodeToString(raw)
	}
	return tagPrefix + id + "/" + o.Interface
}

// parseTag returns the owner in a tag that formatTag wrote.
func parseTag(tag string) (vswitch.Owner, bool) {
	rest, ok := strings.CutPrefix(tag, tagPrefix)
	id, name, both := strings.Cut(rest, "/")
	if !ok || !both || id == "" || name == "" {
		return vswitch.Owner{}, false
	}
	if short, ok := strings.CutPrefix(id, shortIDPrefix); ok {
		raw, err := base64.RawURLEncoding.DecodeString(short)
		if err != nil {
			return vswitch.Owner{}, false
		}
		id = hex.EncodeToString(raw)
	}
	owner := vswitch.Owner{ContainerID: id, Interface: name}
	return owner, formatTag(owner) == tag
}
