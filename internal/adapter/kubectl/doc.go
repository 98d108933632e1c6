// SPDX-License-Identifier: Apache-2.0

// Package kubectl is `kubectl jackfield`: it runs the command jackfield in the plugin's pod on a pod's node. It
// reaches the cluster by running kubectl with the user's flags, so it has the user's rights and configuration. It
// imports nothing that exists on Linux only, since users run it on their own machines.
//
// Its invariant: the exit status and the output are those of jackfield. Where jackfield did not run, the exit status
// is 1 if the pod does not exist, and otherwise 3.
package kubectl
