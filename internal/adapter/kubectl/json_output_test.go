// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// The page has the keys of both objects, and no other.
func TestKeysOfJSONAreDocumented(t *testing.T) {
	documented := testkit.DocumentedKeys(t, "../../../docs/reference/json-output.md")
	for title, of := range map[string]reflect.Type{
		"Node answer": reflect.TypeFor[nodeAnswer](), "Node health": reflect.TypeFor[nodeHealth](),
	} {
		if d := cmp.Diff(testkit.JSONKeys(of), documented[title]); d != "" {
			t.Errorf("%s: -emitted +documented\n%s", title, d)
		}
	}
}
