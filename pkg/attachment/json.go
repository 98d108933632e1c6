// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
)

// decodeJSON stores JSON text in a variable; see [jsontree.Decoder].
func decodeJSON(text string, into any) error {
	root, fault := jsontree.Parse(text)
	if fault == nil {
		fault = jsontree.Decoder{}.Decode(root, into)
	}
	if fault != nil {
		return fault
	}
	return nil
}

// quote returns s as messages show it.
func quote(s string) string { return diag.Quote(s, diag.Most) }
