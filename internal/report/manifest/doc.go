// SPDX-License-Identifier: Apache-2.0

// Package manifest reads the pods and pod templates of Kubernetes manifests, in YAML or JSON, and makes of
// each container the request that an adapter would see on the node. It also finds resource claims, the
// ports that networks ask for, and annotations that no adapter would ever see.
package manifest
