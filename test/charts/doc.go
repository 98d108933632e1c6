// SPDX-License-Identifier: Apache-2.0

// Package charts renders the Helm chart with Helm's engine and the kustomizations with kustomize's,
// and decodes the objects as the API server does. It is a separate module, because nothing else needs
// these libraries.
//
// Invariant: an object is accepted only if the API's types have all its fields.
package charts
