// SPDX-License-Identifier: Apache-2.0

// Package docs checks the documentation: link targets exist, configurations and JSON are valid, and
// the commands, flags, configuration keys and tests that a page names exist.
//
// Invariant: the tests read the same Markdown as a reader. No page has marks for these tests.
package docs
