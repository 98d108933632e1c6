// SPDX-License-Identifier: Apache-2.0

package vswitch

// Status is a virtual switch and the ports of living pods on it.
type Status struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Endpoint string `json:"endpoint"`
	// Checked says that the switch was checked since the daemon started. Until then nothing below is known.
	Checked   bool `json:"checked"`
	Answering bool `json:"answering"` // at the last check
	Ports     int  `json:"ports"`     // on the switch
	Missing   int  `json:"missing"`   // not on the switch, and not re-created yet
	// Recreated, Removed and Errors count since the daemon started or the configuration of the switches changed.
	Recreated int    `json:"recreated"`
	Removed   int    `json:"removed"`
	Errors    int    `json:"errors"`
	Error     string `json:"error,omitempty"` // of the last check
	Remedy    string `json:"remedy,omitempty"`
}

// FindRemedy returns what an administrator can do about a switch that does not answer or lacks ports; "" for a switch
// without a fault.
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
