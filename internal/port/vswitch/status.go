// SPDX-License-Identifier: Apache-2.0

package vswitch

// Status is the state of a virtual switch and of the living pods' ports on it.
type Status struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Endpoint string `json:"endpoint"`
	// Checked is set once the switch was checked after the start of the daemon. Until then the
	// fields below are zero.
	Checked   bool `json:"checked"`
	Answering bool `json:"answering"` // the last check succeeded
	Ports     int  `json:"ports"`     // on the switch
	Missing   int  `json:"missing"`   // recorded, but not on the switch yet
	// Recreated, Removed and Errors are counters. They restart with the daemon and whenever the
	// configuration of the switches changes.
	Recreated int    `json:"recreated"`
	Removed   int    `json:"removed"`
	Errors    int    `json:"errors"`
	Error     string `json:"error,omitempty"` // of the last check
	Remedy    string `json:"remedy,omitempty"`
}

// FindRemedy returns the administrator's next step for a switch that is unresponsive or lacks
// ports. It is "" for a switch without a fault.
func (v *Status) FindRemedy() string {
	switch {
	case !v.Checked:
		return ""
	case !v.Answering:
		return "start the switch, or correct vswitches." + v.Name + ".endpoint"
	case v.Missing > 0:
		return "correct what the switch refuses; jackfield-nri tries again every few seconds"
	}
	return ""
}
