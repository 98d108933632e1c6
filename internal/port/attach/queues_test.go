// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// silentSwitch is a vswitch that does not report the queues of its ports, as VPP.
type silentSwitch struct{ hungSwitch }

func (*silentSwitch) Ensure(_ context.Context, p vswitch.Port) (vswitch.Port, error) {
	p.Queues, p.MTU = 0, 9000
	return p, nil
}

// The application has to know how many queues its network has, even if the vswitch does not report it.
func TestRequestedQueuesReachDeviceInfo(t *testing.T) {
	a := newPortRequest(t, &silentSwitch{})
	a.Port.Queues = 4
	if err := a.Add(t.Context(), noAddresses, func(*deviceinfo.Info) error { return nil }); err != nil {
		t.Fatal(err)
	}
	name, err := InfoFileName(a.Key, "")
	if err != nil {
		t.Fatal(err)
	}
	data, err := a.Root.ReadFile(a.InfoDir+"/"+name, 1<<20)
	if err != nil || !strings.Contains(string(data), `"queues": 4`) || !strings.Contains(string(data), `"mtu": 9000`) {
		t.Errorf("the device-info file has %s, %v", data, err)
	}
}
