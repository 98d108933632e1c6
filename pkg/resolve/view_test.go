// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// What is written by hand is what encoding/json reads back, whatever the names.
func TestTheViewIsJSON(t *testing.T) {
	info, err := deviceinfo.Parse([]byte(`{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"@x"},"é":"\u0001"}`), "")
	must(t, err)
	for _, s := range []string{"", "plain", `quote " and \ back`, "control \x01\n", "ünïcode", "\xff\xfe", "</script>"} {
		v := viewEntry{att: &attachment.Attachment{Network: s, IfName: s, Resource: s, DeviceID: s, Info: info}, socket: "@x", ownPath: s, note: s}
		data := v.appendElement([]byte{'['}, []string{s, "-a", s})
		data = v.appendElement(data, nil)
		var list []map[string]any
		if err := json.Unmarshal(append(data, ']'), &list); err != nil || len(list) != 2 {
			t.Fatalf("%q: %v in %s", s, err, data)
		}
		var want string
		quoted, _ := json.Marshal(s)
		must(t, json.Unmarshal(quoted, &want))
		if list[0]["name"] != want {
			t.Errorf("the name is %q, want %q", list[0]["name"], want)
		}
	}
}

// A shell splits the variable at spaces, so that it holds no argument with one.
func TestArgumentsWithSpaces(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/a b/s")
	h.info("one", "net1", vhost("client", "/var/run/vsw/a b/s"))
	h.listen("/run/vsw/c/s o")
	h.info("two", "net2", vhost("client", "/var/run/vsw/c/s o"))
	r := ask("")
	r.Annotations = nil
	p := h.resolve(r)
	if got := env(p); got["JACKFIELD_NET1_EAL"] != "--vdev=net_virtio_user0,path=/var/run/jackfield/net/net1/s" || got["JACKFIELD_NET2_SOCKET"] != "/var/run/jackfield/net/net2/s o" {
		t.Errorf("%v", got)
	} else if eal, ok := got["JACKFIELD_NET2_EAL"]; ok {
		t.Errorf("a variable that cannot be split: %q", eal)
	}
	if text := string(p.Staging.Files[0].Data); !strings.Contains(text, `"--vdev=net_virtio_user1,path=/var/run/jackfield/net/net2/s o"`) {
		t.Error(text)
	}
}
