// SPDX-License-Identifier: Apache-2.0

// Package quantity reads sizes and rates in configurations. A value that it returns is within the bounds of its rule.
package quantity
