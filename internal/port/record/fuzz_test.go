// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"path"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const testID = "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"

// maxMessage bounds an error about a record, in bytes.
const maxMessage = 4 << 10

// A record is one that an ADD of that name wrote, or an error. DEL removes what the record names, and CHECK and
// the result read the map of the device-info's type.
func FuzzRecord(f *testing.F) {
	file := Key{Network: "fast", ContainerID: testID, Interface: "net1"}.FileName()
	port := `{"name":"` + vswitch.PortName(vswitch.Owner{ContainerID: testID, Interface: "net1"}) + `","owner":{"containerID":"` + testID + `","interface":"net1"},"type":"vhost-user","socket":"/s/d/vhost-user.sock"}`
	for _, data := range []string{
		`{"network":"fast","containerID":"` + testID + `","ifname":"net1","socketDir":"/s","directory":"e061661af373-0123456789ab-net1","deviceInfoDir":"/d","deviceInfoFile":"default-fast-x_net1","deviceInfo":{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/s/d/vhost-user.sock"}}}`,
		`{"network":"fast","containerID":"` + testID + `","ifname":"net1","chained":true,"deviceInfoDir":"/d","deviceInfoFile":"f","deviceInfoKept":true,"deviceInfo":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.3"}}}`,
		`{"network":"fast","containerID":"` + testID + `","ifname":"net1","deviceInfoDir":"/d","deviceInfoFile":"f","deviceInfo":{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/s"}},"vswitch":"ovs0","configFile":"/etc/jackfield/config.yaml","port":` + port + `}`,
		`{"network":"fast","containerID":"` + testID + `","ifname":"net1","directory":"..","deviceInfo":null}`, `{"netw`, `[]`, "\x00\x00", `{}`,
	} {
		f.Add(file, []byte(data))
	}
	f.Fuzz(func(t *testing.T, file string, data []byte) {
		key, ok := parseFileName(file)
		if !ok {
			return
		}
		if key.FileName() != file {
			t.Errorf("name %q is %+v", file, key)
		}
		r, err := (&Store{}).records().Decode(file, data)
		if (r == nil) == (err == nil) {
			t.Fatalf("both or neither of %+v, %v", r, err)
		}
		if err != nil {
			if !errdefs.IsInvalidArgument(err) || len(err.Error()) > maxMessage {
				t.Errorf("%d bytes: %.500v", len(err.Error()), err)
			}
			return
		}
		if r.FileName() != file || !path.IsAbs(r.InfoDir) || name.CheckFile(r.InfoFile) != nil || r.Info.Validate() != nil ||
			r.Directory != "" && (!path.IsAbs(r.SocketDir) || path.Dir(path.Join("/x", r.Directory)) != "/x") {
			t.Errorf("%q is read as %+v", data, r)
		}
		if r.Port != nil && (r.Port.Owner.ContainerID != key.ContainerID || r.Port.Owner.Interface != key.Interface || r.Switch == "") {
			t.Errorf("%q has a port of another attachment: %+v", data, r.Port)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := (&Store{}).records().Decode(file, text)
		if err != nil {
			t.Fatalf("%s is written as %s: %v", data, text, err)
		}
		if more, err := json.Marshal(again); err != nil || !bytes.Equal(more, text) {
			t.Errorf("%s is written as %s and then as %s, %v", data, text, more, err)
		}
	})
}
