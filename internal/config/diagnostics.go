// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// maxFaults bounds how many faults of a file are reported.
const maxFaults = 20

// joinFaults returns the faults as one error in the order of the file.
func joinFaults(faults diag.List) error {
	faults.Sort()
	errs := faults[:min(len(faults), maxFaults)].Unwrap()
	if more := len(faults) - maxFaults; more > 0 {
		errs = append(errs, &diag.Diagnostic{File: faults[0].File, Rule: "and " + strconv.Itoa(more) + " more"})
	}
	return errors.Join(errs...)
}

// describe describes a node for a message.
func describe(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "an object"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Tag == "!!null":
		return "nothing"
	case node.Tag == "!!bool", node.Tag == "!!int", node.Tag == "!!float", node.Tag == "!!timestamp":
		return diag.Excerpt(node.Value, diag.MaxQuoted) + ", which YAML reads as " + map[string]string{
			"!!bool": "a boolean", "!!int": "a number", "!!float": "a number", "!!timestamp": "a time",
		}[node.Tag]
	}
	return diag.Quote(node.Value)
}
