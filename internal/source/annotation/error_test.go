// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// People read the messages in "kubectl describe pod", so review the golden file as text.
// JACKFIELD_UPDATE_GOLDEN=1 rewrites it.
func TestFaultyAnnotationsHaveGoldenMessages(t *testing.T) {
	var got strings.Builder
	for _, tc := range []struct{ key, value string }{
		{DevicesKey, ""},
		{DevicesKey, " \n"},
		{DevicesKey, "nvidia"},
		{DevicesKey, "nvidia.com=0"},
		{DevicesKey, "nvidia=0,,nvidia=1"},
		{DevicesKey, "nvidia=0,"},
		{DevicesKey, "nvidia=0\nnvidia=1"},
		{DevicesKey, "nvidia=0 nvidia=1"},
		{DevicesKey, "vendor.com/gpu"},
		{DevicesKey, "vendor.com/gpu="},
		{DevicesKey, "nvidia="},
		{DevicesKey, "=0"},
		{DevicesKey, "/gpu=0"},
		{DevicesKey, "vendor.com/=0"},
		{DevicesKey, "ok=0,1vendor.com/gpu=0"},
		{DevicesKey, "vendor.com/gpu/x=0"},
		{DevicesKey, "vendor.com/gpu=a/b"},
		{DevicesKey, "nvidia=-"},
		{DevicesKey, "nv!dia=0"},
		{DevicesKey, "/dev/kvm"},
		{DevicesKey, "0000:3b:00.2"},
		{DevicesKey, "3b:00.2"},
		{"cdi.k8s.io/x", "0000:3b:00.2"},
		{DevicesKey, "resource:"},
		{DevicesKey, "resource:sriov"},
		{DevicesKey, "resource:Intel.com/sriov"},
		{DevicesKey, "resource:intel.com/sr iov"},
		{DevicesKey, "resource:intel.com/sriov/"},
		{DevicesKey, "resource:intel.com/sriov/a b"},
		{DevicesKey, "socket:"},
		{DevicesKey, "socket:Spire"},
		{DevicesKey, "socket:/run/spire/agent.sock"},
		{DevicesKey, "none,nvidia=0"},
		{DevicesKey, "[none]"},
		{DevicesKey, "{device: nvidia=0}"},
		{DevicesKey, "device: nvidia=0"},
		{DevicesKey, `"nvidia=0"`},
		{DevicesKey, "[nvidia=0"},
		{DevicesKey, "- nvidia=0\n---\n- nvidia=1\n"},
		{DevicesKey, "# nothing\n"},
		{DevicesKey, "[[nvidia=0]]"},
		{DevicesKey, "[nvidia=0, null]"},
		{DevicesKey, "- nvidia=0\n-\n"},
		{DevicesKey, "[{}]"},
		{DevicesKey, "[{optional: true}]"},
		{DevicesKey, "[{device: nvidia=0, optional: yes please}]"},
		{DevicesKey, `[{device: nvidia=0, optional: "true"}]`},
		{DevicesKey, "[{device: nvidia=0, required: false}]"},
		{DevicesKey, "[{device: nvidia=0, device: nvidia=1}]"},
		{DevicesKey, "[{device: nvidia=0, optional: true, optional: true}]"},
		{DevicesKey, "[{device: [nvidia=0]}]"},
		{DevicesKey, "[{device: null}]"},
		{DevicesKey, "[{[a]: b}]"},
		{DevicesKey, "- &a nvidia=0\n- *a\n"},
		{DevicesKey, "&a [nvidia=0]"},
		{DevicesKey, "[!!str nvidia=0]"},
		{DevicesKey, "[*nobody]"},
		{DevicesKey, "nvidia=\xff"},
		{DevicesKey, strings.Repeat("x", MaxValueBytes+1)},
		{DevicesKey, strings.Repeat("a=0,", MaxItems) + "a=0"},
		{DevicesKey, "[" + strings.Repeat("a=0,", MaxItems) + "a=0]"},
		{DevicesKey, strings.Repeat("x", 5000)},
		{DevicesKey, "a\u202eb\x1b[31m\x00" + strings.Repeat("\x01", 500)},
		{DevicesKey + "/container.app", "nvidia"},
		{NetworksKey, ""},
		{NetworksKey, "auto,net1"},
		{NetworksKey, "[none]"},
		{NetworksKey, "a/b/c"},
		{NetworksKey, "a/"},
		{NetworksKey, "/b"},
		{NetworksKey, "Tenant/net"},
		{NetworksKey, "net 1"},
		{NetworksKey, "[{network: Net}]"},
		{NetworksKey, "[{interface: a/b}]"},
		{NetworksKey, "[{interface: ..}]"},
		{NetworksKey, "[{interface: a-name-of-16-byte}]"},
		{NetworksKey, "[{network: a, interface: b}]"},
		{NetworksKey, "[{device: a}]"},
		{"cdi.k8s.io/", "vendor.com/gpu=0"},
		{"cdi.k8s.io/-x", "vendor.com/gpu=0"},
		{"cdi.k8s.io/a/b", "vendor.com/gpu=0"},
		{"cdi.k8s.io/" + strings.Repeat("x", 64), "vendor.com/gpu=0"},
		{"cdi.k8s.io/x", ""},
		{"cdi.k8s.io/x", "vendor.com/gpu=0, vendor.com/gpu=1"},
		{"cdi.k8s.io/x", "nvidia=0"},
		{"device.jackfield.dev", "nvidia=0"},
		{"Devices.Jackfield.dev", "nvidia=0"},
		{"network.jackfield.dev/pods", "auto"},
		{"devices.jackfield.dev/contaner.x", "nvidia=0"},
		{"devices.jackfield.dev/container.", "nvidia=0"},
		{"devices.jackfield.dev/", "nvidia=0"},
		{"jackfield.dev/devices", "nvidia=0"},
		{"something.jackfield.dev", "nvidia=0"},
	} {
		requests, err := Parse(map[string]string{tc.key: tc.value}, "app")
		if err == nil {
			t.Errorf("%s: %.60q is accepted", tc.key, tc.value)
			continue
		}
		var typed *Error
		if !errors.As(err, &typed) || !errors.Is(err, errdefs.ErrInvalidArgument) || typed.Key != tc.key {
			t.Errorf("%s: %.60q: not an *Error of the key: %#v", tc.key, tc.value, err)
		}
		if len(requests.Devices) > 0 || len(requests.Networks.Items) > 0 {
			t.Errorf("%s: %.60q: requests beside the error", tc.key, tc.value)
		}
		if len(err.Error()) > 600 {
			t.Errorf("%s: %.60q: a message of %d bytes", tc.key, tc.value, len(err.Error()))
		}
		fmt.Fprintf(&got, "%s: %.60q\n\t%v\n", tc.key, tc.value, err)
	}

	golden := filepath.Join("testdata", "errors.golden")
	if os.Getenv("JACKFIELD_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// A hostile value costs little: an NRI request has two seconds in
// all, and NRI serialises the requests of all pods of the node.
func TestHostileValuesAreCheap(t *testing.T) {
	bomb := "- &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += "- &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 10), ",") + "]\n"
	}
	for name, value := range map[string]string{
		"alias bomb":    bomb,
		"depth":         strings.Repeat("[", MaxValueBytes),
		"objects":       "[" + strings.Repeat("{a: ", MaxValueBytes/4-1),
		"block depth":   strings.Repeat("- ", MaxValueBytes/2),
		"many items":    "[" + strings.Repeat("a,", MaxValueBytes/2-1) + "]",
		"many keys":     "[{" + strings.Repeat("a: b,", MaxValueBytes/5-2) + "}]",
		"quotes":        "[" + strings.Repeat(`"",`, MaxValueBytes/3-1) + "]",
		"comments":      strings.Repeat("#\n", MaxValueBytes/2),
		"comment lists": strings.Repeat("- a\n# x\n", MaxValueBytes/8),
		"colons":        "[" + strings.Repeat("a:", MaxValueBytes/2-1) + "]",
		"question":      strings.Repeat("? ", MaxValueBytes/2),
		"escapes":       `["` + strings.Repeat(`\u202e`, MaxValueBytes/6-1) + `"]`,
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			testkit.Cheap(t, 2*time.Second, func() { _, err = Parse(map[string]string{DevicesKey: value}, "app") })
			if err == nil {
				t.Error("no error")
			}
			t.Log(err)
		})
	}
}

// The limit of one annotation is also the limit of all together.
func TestItemLimitCountsAllAnnotations(t *testing.T) {
	annotations := make(map[string]string)
	for k := range 3 {
		var items []string
		for i := range MaxItems / 2 {
			items = append(items, fmt.Sprintf("v/c=%d-%d", k, i))
		}
		annotations[fmt.Sprintf("cdi.k8s.io/k%d", k)] = strings.Join(items, ",")
	}
	if _, err := Parse(annotations, "app"); err == nil || !strings.Contains(err.Error(), "more than 1024 devices are requested in all") {
		t.Errorf("got %v", err)
	}
	delete(annotations, "cdi.k8s.io/k2")
	if got, err := Parse(annotations, "app"); err != nil || len(got.Devices) != MaxItems {
		t.Errorf("got %d, %v", len(got.Devices), err)
	}
}
