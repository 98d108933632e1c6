// SPDX-License-Identifier: Apache-2.0

// Package config reads the node's configuration file.
//
// Invariant: a Config from Parse or Load is complete, with every default filled in, and each value
// obeys the rule of its field. A file that breaks a rule is rejected as a whole, with the place of
// each fault. No key is ignored. The package internal/config/policy checks the policy's patterns
// and reports faults by field; [Config.Position] maps them to the file.
//
// The keys are described in docs/reference/configuration.md.
package config
