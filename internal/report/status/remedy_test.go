// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// Every fault that `jackfield status` shows has a remedy, and nothing else has one.
func TestFaultsHaveRemedies(t *testing.T) {
	fine := Node{Registered: true, Runtime: &Runtime{Name: "containerd"},
		Vswitches: []vswitch.Status{{Name: "a"}, {Name: "b", Checked: true, Answering: true, Ports: 1}}}
	fine.addRemedies()
	if fine.Remedy != "" || fine.Config.Remedy != "" || fine.Vswitches[0].Remedy != "" || fine.Vswitches[1].Remedy != "" {
		t.Errorf("remedies without a fault: %+v", fine)
	}
	faulty := Node{Config: Config{Error: "unknown key"},
		Vswitches: []vswitch.Status{{Name: "a", Checked: true}, {Name: "b", Checked: true, Answering: true, Missing: 1}}}
	faulty.addRemedies()
	if faulty.Remedy == "" || faulty.Config.Remedy == "" || faulty.Vswitches[0].Remedy == "" || faulty.Vswitches[1].Remedy == "" {
		t.Errorf("no remedy of a fault: %+v", faulty)
	}
	docker := Node{Registered: true, Runtime: &Runtime{Name: "docker"}}
	docker.addRemedies()
	if docker.Remedy == "" {
		t.Error("no remedy of a runtime that is not supported")
	}
}
