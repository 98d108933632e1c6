// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/report/doctor"
	"github.com/jackfield/jackfield/internal/report/explain"
	"github.com/jackfield/jackfield/internal/report/policyeval"
	"github.com/jackfield/jackfield/internal/report/status"
)

// jsonSections are the sections of docs/reference/json-output.md, with the objects that they describe.
var jsonSections = map[string]reflect.Type{
	"Explanation": reflect.TypeFor[explanation](), "Request": reflect.TypeFor[engine.Item](), "Remedy": reflect.TypeFor[policy.Remedy](),
	"Edits": reflect.TypeFor[edit.Set](), "Device node": reflect.TypeFor[edit.Device](), "Variable": reflect.TypeFor[edit.Env](),
	"Mount": reflect.TypeFor[edit.Mount](), "Hook": reflect.TypeFor[edit.Hook](), "Group": reflect.TypeFor[edit.GID](),
	"Network device": reflect.TypeFor[edit.NetDevice](),
	"RDT settings":   reflect.TypeFor[edit.RDT](), "Origin": reflect.TypeFor[edit.Origin](),
	"Record": reflect.TypeFor[sandboxRecord](), "Recorded container": reflect.TypeFor[explain.ContainerRecord](),
	"Validated file": reflect.TypeFor[validatedFile](), "Diagnostic": reflect.TypeFor[diag.Diagnostic](), "Inventory": reflect.TypeFor[inventory](),
	"CDI directory": reflect.TypeFor[cdiDir](), "CDI device": reflect.TypeFor[cdiDevice](), "CDI conflict": reflect.TypeFor[cdiConflict](),
	"Refused CDI file": reflect.TypeFor[cdiRefused](), "Ignored CDI file": reflect.TypeFor[cdiIgnored](), "Change": reflect.TypeFor[inventoryItem](),
	"Device-info file": reflect.TypeFor[infoFile](), "Device of a claim": reflect.TypeFor[claimDevice](),
	"Shadowed CDI file":   reflect.TypeFor[cdiShadowed](),
	"Container decisions": reflect.TypeFor[containerDecisions](), "Decision": reflect.TypeFor[policyeval.Decision](),
	"Removed file": reflect.TypeFor[removedFile](), "Transient CDI file": reflect.TypeFor[transientFile](),
	"Suggestion": reflect.TypeFor[suggestion](), "Request without a rule": reflect.TypeFor[notGranted](),
	"Case result": reflect.TypeFor[policyeval.CaseResult](), "Finding of doctor": reflect.TypeFor[doctor.Finding](),
	"Status": reflect.TypeFor[status.Node](), "Runtime": reflect.TypeFor[status.Runtime](), "Configuration in force": reflect.TypeFor[status.Config](),
	"Running container": reflect.TypeFor[status.Container](), "Recorded request": reflect.TypeFor[status.Request](),
	"Recorded device": reflect.TypeFor[engine.HeldDevice](), "Device of a number": reflect.TypeFor[sysfs.NumberedDevice](),
	"Reused device number": reflect.TypeFor[status.ReusedNumber](), "Removed device": reflect.TypeFor[status.LostDevice](),
	"Limit of locked memory": reflect.TypeFor[edit.Memlock](),
	"Policy question":        reflect.TypeFor[policy.Asked](), "Recorded edit": reflect.TypeFor[status.Edit](), "Sandbox": reflect.TypeFor[status.Sandbox](),
	"Vswitch": reflect.TypeFor[vswitch.Status](), "Socket": reflect.TypeFor[status.PlacedSocket](), "Build": reflect.TypeFor[version.Build](),
}

const jsonPage = "../../../docs/reference/json-output.md"

// The page has the keys of every object, and no other.
func TestKeysOfJSONAreDocumented(t *testing.T) {
	documented := testkit.DocumentedKeys(t, jsonPage)
	for title, of := range jsonSections {
		if d := cmp.Diff(testkit.JSONKeys(of), documented[title]); d != "" {
			t.Errorf("%s: -emitted +documented\n%s", title, d)
		}
		delete(documented, title)
	}
	for _, title := range []string{"Node answer", "Node health"} {
		delete(documented, title) // the tests of kubectl-jackfield hold them
	}
	if len(documented) > 0 {
		t.Errorf("no command prints %v", slices.Sorted(maps.Keys(documented)))
	}
}

// What commands print has the keys of its section, and of no other object.
func TestCommandsPrintDocumentedKeys(t *testing.T) {
	documented := testkit.DocumentedKeys(t, jsonPage)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config.yaml": "policy: {rules: [{name: r, for: {namespaces: [a]}, allow: {cdi: [\"v.com/n=*\"]}}]}\n",
		"bad.yaml":    "polciy: {}\n",
		"pod.yaml":    "kind: Pod\nmetadata: {name: p, namespace: a, annotations: {devices.jackfield.dev: \"v.com/n=a,w.com/n=b\"}}\nspec: {containers: [{name: c}]}\n",
		"cases.yaml":  "cases: [{name: x, pod: pod.yaml, want: granted}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for title, args := range map[string][]string{
		"Explanation":         {"explain", file("pod.yaml"), "--config", file("config.yaml")},
		"Validated file":      {"validate", file("config.yaml"), file("bad.yaml")},
		"Inventory":           {"devices", "--root", dir},
		"Container decisions": {"policy", "check", file("pod.yaml"), "--config", file("config.yaml")},
		"Case result":         {"policy", "test", file("cases.yaml"), "--config", file("config.yaml")},
		"Build":               {"version"},
	} {
		var out, stderr bytes.Buffer
		Run(t.Context(), append(args, "-o", "json"), Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &stderr, Getenv: func(string) string { return "" }})
		objects := []map[string]any{}
		if strings.HasPrefix(out.String(), "{") {
			objects = append(objects, nil)
			if err := json.Unmarshal(out.Bytes(), &objects[0]); err != nil {
				t.Fatal(err)
			}
		} else if err := json.Unmarshal(out.Bytes(), &objects); err != nil {
			t.Fatalf("%s: %v: %s", args, err, &stderr)
		}
		if len(objects) == 0 {
			t.Errorf("%s prints no object: %s", args, &stderr)
		}
		for _, object := range objects {
			for key := range object {
				if !slices.Contains(documented[title], key) {
					t.Errorf("%s prints the key %s, which section %s does not have", args, key, title)
				}
			}
		}
	}
}

// Scripts iterate over lists without a check for null.
func TestListsAreNeverNull(t *testing.T) {
	for name, object := range jsonSections {
		var out bytes.Buffer
		o := output{format: formatJSON}
		if err := o.writeResult(Env{Stdout: &out}, reflect.Zero(object).Interface(), nil); err != nil {
			t.Fatal(err)
		}
		var keys map[string]any
		if err := json.Unmarshal(out.Bytes(), &keys); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, field := range reflect.VisibleFields(object) {
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if value, written := keys[key]; written && value == nil && field.Type.Kind() == reflect.Slice {
				t.Errorf("%s: the list %s is null", name, key)
			}
		}
	}
}
