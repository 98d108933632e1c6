// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

// newVDPAHook returns a hook of a host with a vDPA device, whose rule raises the limit of locked memory.
func newVDPAHook(t *testing.T, limit string) (*hook, *bytes.Buffer) {
	t.Helper()
	tree, err := sysfstest.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.AddVDPA("vdpa0", "vhost_vdpa", "", 0, sysfstest.Zero()); err != nil {
		t.Skipf("skipped: %v", err)
	}
	for _, err := range []error{
		tree.Link("/sys/dev/char/1:5", "/sys/devices/virtual/vdpa0/vhost-vdpa-0"),
		tree.WriteFile("/etc/cdi/v.json", `{"cdiVersion":"0.6.0","kind":"v.com/c","devices":[{"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/vhost-vdpa-0"}]}}]}`),
		tree.WriteFile("/etc/jackfield/config.yaml", `policy: {rules: [{name: r, for: {namespaces: [""]}, allow: {cdi: ["v.com/c=a"]}, limits: {memlock: `+limit+`}}]}`),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	h := &hook{host: tree.Root(), stage: Precreate, env: Env{Stdout: &out}, userNS: func() (hostfs.Outside, bool) { return hostfs.Outside{}, false }}
	if h.log, err = openLog(filepath.Join(tree.Root().Dir(), "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.log.close)
	return h, &out
}

const vdpaConfig = `{"ociVersion":"1.0.2","process":{"rlimits":[{"type":"RLIMIT_MEMLOCK","soft":65536,"hard":65536},{"type":"RLIMIT_NOFILE","soft":1,"hard":2}]},` +
	`"root":{"path":"/r"},"annotations":{"devices.jackfield.dev":"v.com/c=a"},"linux":{}}`

// Precreate sets the limit of the rule. The limit of this process is the lowest, because the container would inherit it.
func TestPrecreateSetsLimitOfLockedMemory(t *testing.T) {
	own := ownMemlock()
	if own == nil || own.Soft < 1<<20 || own.Soft == quantity.Unlimited {
		t.Skipf("skipped: this process's limit of locked memory is %v", own)
	}
	h, out := newVDPAHook(t, "64Ki")
	if err := h.precreate(t.Context(), []byte(vdpaConfig)); err != nil || !strings.Contains(out.String(), `"soft":65536,"hard":65536`) {
		t.Errorf("the same limit: %v: %s", err, out)
	}
	h, out = newVDPAHook(t, "1Mi")
	if err := h.precreate(t.Context(), []byte(vdpaConfig)); err != nil || strings.Count(out.String(), "RLIMIT_MEMLOCK") != 1 || strings.Contains(out.String(), `"soft":65536`) {
		t.Errorf("%v: %s", err, out)
	}
}

// Without CAP_SYS_RESOURCE the runtime could not start a container with a higher limit than the hard one.
func TestPrecreateSetsNoLimitThatRuntimeCannotSet(t *testing.T) {
	own := ownMemlock()
	if own == nil || own.Hard == quantity.Unlimited {
		t.Skip("skipped: the limit of locked memory is unlimited")
	}
	raised := unix.Rlimit{Cur: uint64(own.Soft), Max: uint64(own.Hard) + 4096}
	canRaise := unix.Prlimit(os.Getpid(), unix.RLIMIT_MEMLOCK, &raised, nil) == nil
	possible, why := possibleMemlock(quantity.Unlimited)
	if canRaise != (possible == quantity.Unlimited) || canRaise != (why == "") {
		t.Errorf("can raise: %t; limit %s, reason %q", canRaise, possible, why)
	}
}

// At the other stages the runtime has read the configuration. The device is delivered, and the log has the reason.
func TestLimitOfLockedMemoryIsTooLateForCreateRuntime(t *testing.T) {
	h, _ := newVDPAHook(t, "unlimited")
	h.stage = CreateRuntime
	possible, why := h.lateMemlock(quantity.Unlimited)
	if possible != 0 || !strings.Contains(why, "stage createRuntime cannot set it") || !strings.Contains(why, "precreate") {
		t.Errorf("limit %s, reason %q", possible, why)
	}
}
