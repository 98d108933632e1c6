// SPDX-License-Identifier: Apache-2.0

// Package docs holds the documentation true: links lead somewhere, configurations
// are taken, JSON parses, and the commands, flags, configuration keys, metrics and
// tests that a page names exist.
//
// Invariant: a page is read as its reader reads it, from the Markdown itself;
// nothing is marked in it for the sake of these tests.
package docs
