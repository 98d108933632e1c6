// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/engine"
)

func TestNoteOfHugePages(t *testing.T) {
	const socket = `"device-info":{"type":"vhost-user","version":"1.1.0","vhost-user":{"path":"/s"}},`
	for name, c := range map[string]struct {
		args  string
		limit string
		eal   string
		note  string // "" for none
		info  string
	}{
		"none":              {"dpdk-testpmd $JACKFIELD_NET1_EAL", "", `["-a","0000:03:00.1"]`, "add hugepages-2Mi", ""},
		"enough":            {"dpdk-testpmd -m 512", "512Mi", `["-a","0000:03:00.1"]`, "", ""},
		"unknown need":      {"", "2Mi", `["-a","0000:03:00.1"]`, "", ""},
		"too few":           {"dpdk-testpmd -m 1024", "512Mi", `["-a","0000:03:00.1"]`, "request 1Gi of huge pages", ""},
		"too few, by node":  {"app --socket-mem=512,512 --", "512Mi", `["-a","0000:03:00.1"]`, "limits are 512Mi", ""},
		"without":           {"app --no-huge", "", `["-a","0000:03:00.1"]`, "", ""},
		"no DPDK":           {"app", "", `[]`, "", ""},
		"socket":            {"app", "", `["--vdev=x"]`, "", socket},
		"socket of DPDK":    {"app $JACKFIELD_NET1_EAL", "", `["--vdev=x"]`, "add hugepages-2Mi", socket},
		"shell's arguments": {"sh -c app --numa-mem 4", "2Mi", `["-a","0000:03:00.1"]`, "request 4Mi", ""},
	} {
		out := &Explanation{Requests: []engine.Item{{Name: "other"}, {Name: "ns/one", Interface: "net1"}},
			View: []byte(`[{"name":"ns/one","interface":"net1",` + c.info + `"jackfield":{"eal":` + c.eal + `}}]`)}
		limit, _ := quantity.ParseMemory(c.limit)
		noteHugePages(out, strings.Split(c.args, " "), limit)
		notes := strings.Join(out.Requests[1].Notes, "\n")
		if (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) || len(out.Requests[0].Notes) > 0 {
			t.Errorf("%s: notes %q, want %q", name, notes, c.note)
		}
	}
}
