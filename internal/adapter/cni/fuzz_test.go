// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/network"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// mostMessage is more than any message about a value from outside has, in bytes: what
// it quotes is cut.
const mostMessage = 4 << 10

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
		a, err := (&Plugin{Environ: []string{"CNI_ARGS=" + args}}).parseArgs()
		switch {
		case err != nil:
			if e := attach.AsError(err); e.Code != codeEnvironment || !strings.Contains(e.Msg, "CNI_ARGS") || len(err.Error()) > mostMessage {
				t.Errorf("%q: code %d, %d bytes: %.500v", args, e.Code, len(err.Error()), err)
			}
		case a.namespace != "" && (!name.IsLabel(a.namespace) || strings.ContainsAny(a.namespace, "/.")), slices.ContainsFunc(a.ips, func(ip string) bool { return !network.IsIP(ip) }), a.mac != "" && len(a.mac) != 17:
			t.Errorf("%q is read as %+v", args, a)
		}

		if h, err := network.ParseHeader(data); err != nil {
			if e := attach.AsError(err); e.Code != codeDecode || len(err.Error()) > mostMessage {
				t.Errorf("%.200q: code %d, %d bytes: %.500v", data, e.Code, len(err.Error()), err)
			}
		} else if slices.Contains(network.Versions, h.Version) && isOlder(h.Version, network.Versions[0]) {
			t.Errorf("%q is supported", h.Version)
		}

		for _, version := range network.Versions {
			r, err := parseResultText(data, version)
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
	again, err := parseResultText(text, version)
	if err != nil {
		t.Fatalf("%.200q is passed on as %.200q: %v", data, text, err)
	}
	if more, err := json.Marshal(again); err != nil || !bytes.Equal(more, text) {
		t.Errorf("%.200q is passed on as %.500q and then as %.500q, %v", data, text, more, err)
	}
	c := &call{conf: &network.Config{Attachment: attach.Attachment{Key: record.Key{Interface: "net1"}}}}
	if at := c.interfaceOf(r); at >= len(r.Interfaces) {
		t.Errorf("interface %d of %d", at, len(r.Interfaces))
	}
	checked := &deviceinfo.Info{Extra: map[string]json.RawMessage{attachment.InterfaceInfoKey: data}}
	read, err := attachment.ReadInterfaceInfo(checked)
	if err == nil {
		err = checkAddresses(read.IPs, r)
	}
	if err != nil && len(err.Error()) > mostMessage {
		t.Errorf("%d bytes: %.500v", len(err.Error()), err)
	}
}
