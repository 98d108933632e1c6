// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Every example of the page is accepted, and every message on it is a message of Parse.
func TestExamplesAndMessagesOfAnnotationsPageAreTrue(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/errors.golden")
	if err != nil {
		t.Fatal(err)
	}
	examples, messages := 0, 0
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		switch block[1] {
		case "yaml":
			var pod struct{ Annotations map[string]string }
			if err := yaml.Unmarshal([]byte(block[2]), &pod); err != nil || len(pod.Annotations) == 0 {
				t.Errorf("%v in\n%s", err, block[2])
			}
			for _, container := range []string{"app", "sidecar", "metrics", "probe"} {
				if _, err := Parse(pod.Annotations, container); err != nil {
					t.Errorf("%v in\n%s", err, block[2])
				}
			}
			examples++
		case "text":
			for line := range strings.Lines(block[2]) {
				if !strings.Contains(string(golden), "\t"+line) {
					t.Errorf("Parse has no such message: %s", line)
				}
				messages++
			}
		}
	}
	if examples < 6 || messages < 6 {
		t.Errorf("found %d examples and %d messages only", examples, messages)
	}
}
