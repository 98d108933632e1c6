// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"
)

// DecodeYAML returns the YAML documents of a file as JSON, without those that hold nothing but
// comments. Types are checked as strictly as in JSON: a number is no string.
func DecodeYAML(data []byte) ([]json.RawMessage, error) {
	var docs []json.RawMessage
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		var compact bytes.Buffer
		switch {
		case err != nil && json.Compact(&compact, bytes.TrimSpace(data)) == nil:
			return []json.RawMessage{compact.Bytes()}, nil // not all JSON is YAML: escapes of surrogate pairs are not
		case err != nil:
			return nil, err
		}
		if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
			continue
		}
		convertToStrings(&node)
		var value any
		if err := node.Decode(&value); err != nil {
			return nil, err
		}
		doc, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
}

// convertToStrings turns dates, and numbers and booleans that are keys, into strings, as Kubernetes reads them.
func convertToStrings(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!timestamp" {
		node.Tag = "!!str"
	}
	for i, child := range node.Content {
		isKey := node.Kind == yaml.MappingNode && i%2 == 0
		if isKey && slices.Contains([]string{"!!int", "!!float", "!!bool"}, child.ShortTag()) {
			child.Tag = "!!str"
		}
		convertToStrings(child)
	}
}
