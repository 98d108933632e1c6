// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
)

// devices.json is valid JSON for any names.
func TestViewIsJSON(t *testing.T) {
	info, err := deviceinfo.Parse([]byte(`{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"@x"},"é":"\u0001"}`), "")
	testkit.Must(t, err)
	for _, s := range []string{"", "plain", `quote " and \ back`, "control \x01\n", "ünïcode", "\xff\xfe", "</script>"} {
		a := &attachment.Attachment{Network: s, IfName: s, Resource: s, DeviceID: s, Info: info}
		v := newAttachmentEntry(a, placement{path: "@x", ownPath: s, note: s}).element
		with := v
		with.Jackfield.EAL = []string{s, "-a", s}
		data, err := encodeView([]devices.Device{with, v})
		testkit.Must(t, err)
		var list []map[string]any
		if err := json.Unmarshal(data, &list); err != nil || len(list) != 2 {
			t.Fatalf("%q: %v in %s", s, err, data)
		}
		var want string
		quoted, _ := json.Marshal(s)
		testkit.Must(t, json.Unmarshal(quoted, &want))
		if list[0]["name"] != want {
			t.Errorf("the name is %q, want %q", list[0]["name"], want)
		}
	}
}

// A shell splits the EAL variable at spaces. If an argument has a space, the variable is not set.
func TestEALVariableIsUnsetIfAnArgumentHasSpaces(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/a b/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/a b/s"))
	h.listen("/run/vsw/c/s o")
	h.writeInfo("two", "net2", vhostUserInfo("client", "/var/run/vsw/c/s o"))
	r := newRequest("")
	r.Annotations = nil
	p := h.resolve(r)
	if got := planEnv(p); got["JACKFIELD_NET1_EAL"] != "--vdev=net_virtio_user0,path=/var/run/jackfield/net/net1/s" || got["JACKFIELD_NET2_SOCKET"] != "/var/run/jackfield/net/net2/s o" {
		t.Errorf("variables %v", got)
	} else if eal, ok := got["JACKFIELD_NET2_EAL"]; ok {
		t.Errorf("EAL variable %q cannot be split", eal)
	}
	if text := string(p.Staging.Files[0].Data); !strings.Contains(text, `"--vdev=net_virtio_user1,path=/var/run/jackfield/net/net2/s o"`) {
		t.Error(text)
	}
}
