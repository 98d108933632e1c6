// SPDX-License-Identifier: Apache-2.0

// Package kube has the test that a release can be installed in a Kubernetes cluster: Helm pulls the chart, and the
// node the image, from a registry that got the release's layouts.
package kube
