// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// findUnknownKey returns the first key of a file of cases that no case has, or nil. JSON that is not YAML is for the
// decoder.
func findUnknownKey(data []byte) *diag.Diagnostic {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil || len(document.Content) != 1 {
		return nil
	}
	return unknownKey(document.Content[0], "", reflect.TypeFor[caseFile]())
}

// unknownKey returns the first key below a node that the Go type does not have, or nil. Values of other types than the
// node's are for the decoder.
func unknownKey(node *yaml.Node, path string, t reflect.Type) *diag.Diagnostic {
	switch {
	case t.Kind() == reflect.Pointer:
		return unknownKey(node, path, t.Elem())
	case node.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, element := range node.Content {
			if fault := unknownKey(element, path+"["+strconv.Itoa(i)+"]", t.Elem()); fault != nil {
				return fault
			}
		}
	case node.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		keys, types := jsonKeys(t)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			at := slices.IndexFunc(keys, func(known string) bool { return strings.EqualFold(known, key.Value) })
			if at < 0 {
				return &diag.Diagnostic{Line: key.Line, Column: key.Column, Field: path,
					Rule: "unknown key " + diag.Quote(key.Value) + "; the keys here are " + strings.Join(keys, ", ") +
						diag.Suggest(key.Value, keys...)}
			}
			if fault := unknownKey(node.Content[i+1], strings.TrimPrefix(path+"."+keys[at], "."), types[at]); fault != nil {
				return fault
			}
		}
	}
	return nil
}

// jsonKeys returns the keys of a struct and the types of their values.
func jsonKeys(t reflect.Type) (keys []string, types []reflect.Type) {
	for f := range t.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch key {
		case "-":
			continue
		case "":
			key = strings.ToLower(f.Name[:1]) + f.Name[1:]
		}
		if strings.ToUpper(f.Name) == f.Name {
			key = strings.ToLower(f.Name) // CDI
		}
		keys, types = append(keys, key), append(types, f.Type)
	}
	return keys, types
}
