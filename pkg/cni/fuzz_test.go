// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// mostMessage is more than any message about a value from outside has, in bytes: what
// it quotes is cut.
const mostMessage = 4 << 10

// A record is what an ADD of that name wrote, or refused with the key: what DEL removes
// by it lies where it says, and CHECK can compare it.
func FuzzRecord(f *testing.F) {
	name := recordName("fast", testID, "net1")
	for _, data := range []string{
		`{"network":"fast","containerID":"` + testID + `","ifname":"net1","socketDir":"/s","directory":"e061661af373-0123456789ab-net1","deviceInfoDir":"/d","deviceInfoFile":"default-fast-x_net1","deviceInfo":{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/s/d/vhost-user.sock"}}}`,
		`{"network":"fast","containerID":"` + testID + `","ifname":"net1","chained":true,"deviceInfoDir":"/d","deviceInfoFile":"f","deviceInfoKept":true,"deviceInfo":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.3"}}}`,
		`{"network":"fast","containerID":"` + testID + `","ifname":"net1","directory":"..","deviceInfo":null}`, `{"netw`, `[]`, "\x00\x00", `{}`,
	} {
		f.Add(name, []byte(data))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		network, id, ifName, ok := splitRecordName(name)
		if ok && recordName(network, id, ifName) != name {
			t.Errorf("name %q is %q, %q, %q", name, network, id, ifName)
		}
		r, err := parseRecord(name, data)
		if (r == nil) == (err == nil) {
			t.Fatalf("both or neither of %+v, %v", r, err)
		}
		if err != nil {
			if !errdefs.IsInvalidArgument(err) || len(err.Error()) > mostMessage {
				t.Errorf("%d bytes: %.500v", len(err.Error()), err)
			}
			return
		}
		if recordName(r.Network, r.ContainerID, r.IfName) != name || !path.IsAbs(r.InfoDir) || deviceinfo.CheckFileName(r.InfoFile) != nil ||
			r.Directory != "" && (!path.IsAbs(r.SocketDir) || path.Dir(path.Join("/x", r.Directory)) != "/x") {
			t.Errorf("%q is read as %+v", data, r)
		}
		c := &call{Plugin: &Plugin{}, params: params{IfName: r.IfName}, version: "1.1.0"}
		if i := c.newInterface(r.Info, socketOf(r.Info), ""); i.Name != r.IfName {
			t.Errorf("interface %+v", i)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseRecord(name, text)
		if err != nil {
			t.Fatalf("%s is written as %s: %v", data, text, err)
		}
		if more, err := json.Marshal(again); err != nil || !bytes.Equal(more, text) {
			t.Errorf("%s is written as %s and then as %s, %v", data, text, more, err)
		}
	})
}

// What comes with a call beside the configuration's own keys: its version and name,
// CNI_ARGS, and the previous plugin's or the IPAM plugin's answer.
func FuzzAnswers(f *testing.F) {
	for _, args := range []string{"", "IgnoreUnknown=1;K8S_POD_NAMESPACE=apps;K8S_POD_NAME=p;X=y", "IP=10.0.0.1/24;MAC=c2:11:22:33:44:55", "IP=;=;;MAC=x"} {
		for _, data := range []string{
			`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/n"}],"ips":[{"address":"10.1.0.5/16","gateway":"10.1.0.1","interface":0}],"dns":{}}`,
			`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.0.5/16"}],"routes":[{"dst":"0.0.0.0/0"}]}`,
			`{"cniVersion":"0.4.0","interfaces":[null],"ips":[{"version":"4","adress":"10.1.0.5/16"},null],"routes":[{}]}`, `{"cniVersion":"0.2.0","ip4":{"IP":null},"IPS":[{}]}`,
			`{"cniVersion":"1.0.0` + strings.Repeat("\xcf", 2000) + `"}`, `{"cniVersion":"1.0.` + strings.Repeat("0", 9000) + `"}`,
			`{"ip4":{"ip":"10.1.0.5/16"}}`, `{"cniVersion":"1.1.0","code":11,"msg":"later","details":"d"}`, `null`, `{"name":"a","cniVersion":1}`,
		} {
			f.Add(args, []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, args string, data []byte) {
		a, err := parseArgs(args)
		switch {
		case err != nil:
			if e := asError(err); e.Code != codeEnvironment || !strings.Contains(e.Msg, "CNI_ARGS") || len(err.Error()) > mostMessage {
				t.Errorf("%q: code %d, %d bytes: %.500v", args, e.Code, len(err.Error()), err)
			}
		case a.namespace != "" && (!isLabel(a.namespace) || strings.ContainsAny(a.namespace, "/.")), slices.ContainsFunc(a.ips, func(ip string) bool { return !isIP(ip) }), a.mac != "" && len(a.mac) != 17:
			t.Errorf("%q is read as %+v", args, a)
		}

		if h, err := decodeHead(data); err != nil {
			if e := asError(err); e.Code != codeDecode || len(err.Error()) > mostMessage {
				t.Errorf("%.200q: code %d, %d bytes: %.500v", data, e.Code, len(err.Error()), err)
			}
		} else if h.supported && older(h.version, versions[0]) {
			t.Errorf("%q is supported", h.version)
		}

		if e := asError(ipamError("ADD", "host-local", data, errors.New("exit status 1"))); e == nil || e.Code == 0 || e.Msg == "" {
			t.Errorf("%.200q: %+v", data, e)
		}
		for _, version := range versions {
			r, err := parseResult(data, version)
			if (r == nil) == (err == nil) {
				t.Fatalf("both or neither of %+v, %v", r, err)
			}
			if err != nil {
				continue
			}
			sameResult(t, version, data, r)
		}
	})
}

// sameResult: a result that is passed on says the same as the one that came.
func sameResult(t *testing.T, version string, data []byte, r *types100.Result) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("%.200q cannot be passed on: %v", data, err)
	}
	again, err := parseResult(text, version)
	if err != nil {
		t.Fatalf("%.200q is passed on as %.200q: %v", data, text, err)
	}
	if more, err := json.Marshal(again); err != nil || !bytes.Equal(more, text) {
		t.Errorf("%.200q is passed on as %.500q and then as %.500q, %v", data, text, more, err)
	}
	c := &call{params: params{IfName: "net1"}, conf: &conf{}}
	if at := c.interfaceOf(r); at >= len(r.Interfaces) {
		t.Errorf("interface %d of %d", at, len(r.Interfaces))
	}
	checked := &deviceinfo.Info{Extra: map[string]json.RawMessage{extraKey: data}}
	if err := checkAddresses(checked, r); err != nil && len(err.Error()) > mostMessage {
		t.Errorf("%d bytes: %.500v", len(err.Error()), err)
	}
}
