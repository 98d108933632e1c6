// SPDX-License-Identifier: Apache-2.0

// Package charts renders what Kubernetes is given — the Helm chart with Helm's own
// engine, the kustomization with kustomize's — and reads it as the API server
// would. It is a module of its own: nothing else needs these libraries.
//
// Invariant: an object is taken only when every field of it is known to the API's
// own types.
package charts
