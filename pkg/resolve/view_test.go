// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"
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
