// SPDX-License-Identifier: Apache-2.0

package status

import "cmp"

// FindRemedy returns the remedy for a runtime; "" for one that applies the adjustments of NRI plugins.
func (r *Runtime) FindRemedy() string {
	if r.Limitation() == "" {
		return ""
	}
	return "run these containers with containerd or CRI-O, or with Podman and jackfield-hook"
}

// addRemedies sets the remedies of all faults.
func (n *Node) addRemedies() {
	n.Remedy = n.Runtime.FindRemedy()
	if !n.Registered {
		n.Remedy = "run `jackfield doctor`, and read the log of jackfield-nri"
	}
	if n.Config.Error != "" {
		n.Config.Remedy = "correct the file; `jackfield validate --as config " + cmp.Or(n.Config.File, "FILE") +
			"` has every finding"
	}
	for i := range n.Vswitches {
		n.Vswitches[i].Remedy = n.Vswitches[i].FindRemedy()
	}
}
