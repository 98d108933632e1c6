// SPDX-License-Identifier: Apache-2.0

// Package cdi compares pkg/cdi with upstream's CDI cache: both must accept and reject the
// same files, and find the same devices with the same edits. isIntended lists the intended
// differences, and docs/contributing/conformance-cdi.md gives their reasons.
package cdi
