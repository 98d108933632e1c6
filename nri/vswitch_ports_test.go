// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/port/reconcile"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

func (h *reloadHost) portReconciler() *reconcile.Reconciler {
	h.p.ports.mu.Lock()
	defer h.p.ports.mu.Unlock()
	return h.p.ports.reconciler
}

// The reconciler follows the configuration. Without vswitches there is none.
func TestVswitchesFollowConfiguration(t *testing.T) {
	h := newReloadHost(t, granting, false)
	if h.portReconciler() != nil || h.p.endpoints.nodeStatus().Vswitches != nil {
		t.Error("a reconciler runs without a vswitch")
	}
	h.replaceConfigFile(granting + "vswitches: [{name: ovs0, type: ovs, endpoint: /run/none/db.sock, bridges: [br0]}]\n")
	h.waitForStatus("a vswitch that does not answer", func(ConfigStatus) bool {
		found := h.p.endpoints.nodeStatus().Vswitches
		return len(found) == 1 && found[0].Checked && !found[0].Answering && found[0].Error != "" && found[0].Errors > 0
	})
	h.waitForStatus("the failure in the log", func(ConfigStatus) bool {
		return strings.Contains(h.log.String(), "cannot keep the ports of running pods on the vswitch")
	})
	first := h.portReconciler()
	h.replaceConfigFile(refusing + "vswitches: [{name: ovs0, type: ovs, endpoint: /run/none/db.sock, bridges: [br0]}]\n")
	h.waitForStatus("another rule", hasGeneration(3))
	if h.portReconciler() != first {
		t.Error("a change of a rule restarts the reconciler")
	}
	h.replaceConfigFile(granting)
	h.waitForStatus("no vswitch", func(s ConfigStatus) bool { return h.p.endpoints.nodeStatus().Vswitches == nil })
	if h.portReconciler() != nil {
		t.Error("the reconciler still runs without a vswitch")
	}
}

// The ports of a vswitch that are lost or refused together are one line. The others are for debugging.
func TestManyPortsAreOneLine(t *testing.T) {
	var changes []reconcile.Change
	for i := range 100 {
		owner := vswitch.Owner{ContainerID: fmt.Sprint("c", i), Interface: "net1", Namespace: "dpdk",
			Pod: fmt.Sprint("web-", i)}
		port := vswitch.Port{Name: vswitch.PortName(owner), Owner: owner}
		changes = append(changes, reconcile.Change{Port: port, Err: fmt.Errorf("no bridge for %d", i)})
	}
	for level, want := range map[logrus.Level]int{logrus.InfoLevel: 1, logrus.DebugLevel: 101} {
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		log.SetLevel(level)
		v := &vswitchPorts{daemon: &daemon{log: logrus.NewEntry(log)}}
		v.reportEvent(reconcile.Event{Switch: "ovs0", Action: reconcile.Failed, Changes: changes})
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("%d lines at level %s, want %d", got, level, want)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		last := lines[len(lines)-1]
		for _, text := range []string{"level=warning", "vswitch=ovs0", "count=100", `error="no bridge for 0"`,
			changes[0].Port.Name + " (dpdk/web-0), ", "(dpdk/web-4)"} {
			if !strings.Contains(last, text) {
				t.Errorf("%s; want %s", last, text)
			}
		}
		if strings.Contains(last, "web-5") {
			t.Errorf("more than %d ports are named: %s", maxLoggedPorts, last)
		}
	}
}
