// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// TestMissingCDIDeviceHasRemedies checks the remedies in the error of a missing device. Missing directories cannot be
// validated. The author of a pod, who reads the error in an event, can only check the name.
func TestMissingCDIDeviceHasRemedies(t *testing.T) {
	h := newHost(t, "enforce")
	testkit.Must(t, os.Remove(h.dir+"/run/cdi"))
	const devices, validate = "run `jackfield devices` to list the devices", " and `jackfield validate /etc/cdi` to check the files"
	for name, want := range map[string][]string{
		"vendor.com/net=z": {devices + validate},
		"nvidia.com/gpu=0": {"run `jackfield cdi generate nvidia` to create one from what the driver reports", devices + validate},
	} {
		_, err := h.e.Registry().Snapshot().Device(name)
		var none *cdi.NotFoundError
		if !errors.As(err, &none) {
			t.Fatal(err)
		}
		administrator, tenant := Options{ForAdministrator: true}, Options{}
		forTenant := []string{"check the name"}
		for _, remedy := range want {
			forTenant = append(forTenant, "the node's administrator can "+remedy)
		}
		for _, tc := range []struct {
			opts  *Options
			short bool
			want  []string
		}{
			{&administrator, false, want},
			{&administrator, true, []string{devices}},
			{&tenant, false, forTenant},
			{&tenant, true, []string{"the node's administrator can " + devices}},
		} {
			if diff := cmp.Diff(tc.want, tc.opts.remediesOf(none, tc.short)); diff != "" {
				t.Errorf("%s, short: %v, for the administrator: %v (-want +got):\n%s", name, tc.short, tc.opts.ForAdministrator, diff)
			}
		}
	}
}

// A container with a hostPath volume of /dev starts without the nodes that the runtime would make there, so it is refused.
// An optional request is skipped, and the container starts.
func TestVolumeThatHidesNodeRefusesContainer(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll, nil)
	h.write("/etc/cdi/renamed.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/renamed","devices":[
  {"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/vf0","hostPath":"/dev/a","type":"c","major":1,"minor":3}]}}]}`)
	volume := edit.Mount{Source: "/dev", Destination: "/dev", Type: "bind", Options: []string{"rbind"}}
	r := newRequest("vendor.com/renamed=a")
	r.Have.Mounts = append(r.Have.Mounts, volume)
	_, err := h.e.Resolve(t.Context(), r)
	if !errdefs.IsConflict(err) || !strings.Contains(err.Error(), `"/dev/vf0"`) {
		t.Errorf("resolved: %v", err)
	}
	r.Annotations["devices.jackfield.dev"] = `[{device: "vendor.com/renamed=a", optional: true}, {device: "vendor.com/net=a"}]`
	plan := h.resolve(r)
	if plan.Items[0].Outcome != Skipped || plan.Items[1].Outcome != Injected || len(plan.Set.Devices) != 1 {
		t.Errorf("items %+v, devices %+v", plan.Items, plan.Set.Devices)
	}
}
