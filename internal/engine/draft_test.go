// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// A note about a variable names only devices that the container has. An optional request can fail after it has set one.
func TestSkippedRequestSetsNoVariable(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll, nil)
	h.e.opts.ForAdministrator = true
	h.write("/etc/cdi/x.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/x","devices":[
  {"name":"a","containerEdits":{"env":["X=1"]}},
  {"name":"b","containerEdits":{"deviceNodes":[{"path":"/dev/missing"}]}}]}`)
	h.write("/etc/cdi/y.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/y","devices":[{"name":"b","containerEdits":{"env":["X=2"]}}]}`)
	p := h.resolve(newRequest(`[{device: "vendor.com/x=all", optional: true}, vendor.com/y=b]`))
	if p.Items[0].Outcome != Skipped || p.Items[1].Outcome != Injected || planEnv(p)["X"] != "2" {
		t.Fatalf("plan %+v", p)
	}
	if notes := strings.Join(p.Items[1].Notes, "; "); strings.Contains(notes, "variable X") {
		t.Errorf("the note has a device that was skipped: %s", notes)
	}
}

// TestFailedCandidateLeavesNothing checks every part of a delta. The same candidate without an error changes them all.
func TestFailedCandidateLeavesNothing(t *testing.T) {
	h := newHost(t, "enforce")
	info, err := deviceinfo.Parse([]byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1"}}`), "")
	testkit.Must(t, err)
	p := newDraft(newInputs(t.Context(), h.e, newRequest("")))
	state := func() map[string]any {
		names := []string{}
		for i := range p.view {
			names = append(names, p.view[i].element.Name)
		}
		return map[string]any{"edits": *p.edits.Edits(), "staging": p.host, "view": names, "spec files": len(p.specFiles),
			"CDI devices": len(p.cdiDevices), "variables": len(p.variables)}
	}
	p.add(candidate{item: Item{Request: "resource"}, resolve: func(d *delta) error {
		d.view = newAttachmentEntry(&attachment.Attachment{Resource: "vendor.com/vf", Info: info}, placement{})
		return nil
	}})
	var failure error
	addNetwork := func() {
		p.add(candidate{item: Item{Request: "network", Optional: true}, resolve: func(d *delta) error {
			d.view = newAttachmentEntry(&attachment.Attachment{Network: "ns/n", IfName: "net1", Info: info}, placement{})
			d.host.Dirs = append(d.host.Dirs, edit.Dir{Path: "net/net1"})
			putEntry(&d.specFiles, "/etc/cdi/x.json", true)
			d.cdiDevices = append(d.cdiDevices, "vendor.com/x=a")
			putEntry(&d.variables, "X", envSetting{"1", "vendor.com/x=a"})
			return errors.Join(d.edits.AddEnv(&edit.Env{Name: "X", Value: "1"}), failure)
		}})
	}
	before := state()
	failure = errors.New("failed")
	addNetwork()
	if diff := cmp.Diff(before, state()); diff != "" || p.items[1].Outcome != Skipped {
		t.Errorf("after a skipped request: %s, outcome %s", diff, p.items[1].Outcome)
	}
	failure = nil
	addNetwork()
	after := state()
	for part, value := range before {
		if cmp.Equal(value, after[part]) {
			t.Errorf("a merged request did not change the %s", part)
		}
	}
	if len(p.view) != 1 || p.view[0].element.Interface != "net1" || p.items[2].Outcome != Injected {
		t.Errorf("view %+v, items %+v", p.view, p.items)
	}
}
