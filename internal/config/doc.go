// SPDX-License-Identifier: Apache-2.0

// Package config reads the node's configuration file.
//
// Invariant: a Config that Parse or Load returns is complete (every default is
// filled in) and every single value in it keeps the rule of its field; a file
// that breaks one is refused as a whole, with the place of each fault. There
// is no key that is ignored. What the policy's patterns mean is the business
// of internal/config/policy, which reports faults by field; [Config.Position] finds the
// place in the file.
//
// The keys are described in docs/reference/configuration.md.
package config
