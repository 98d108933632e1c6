// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The first block of the page is what holds without a file, and the others
// are files that are taken.
func TestExamplesOfConfigurationPageAreAccepted(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Fatalf("found %d blocks", len(blocks))
	}
	for i, block := range blocks {
		c, err := Parse([]byte(block[1]), DefaultPath)
		if err != nil {
			t.Errorf("%v in\n%s", err, block[1])
		} else if d := diff(Default(), c); i == 0 && d != "" {
			t.Errorf("-default +page\n%s", d)
		}
	}

	_, err = Parse([]byte("cdi:\n  specDir: [/etc/cdi]\nsockets:\n  roots: [/srv/vsw]\n  access: acls\n"), DefaultPath)
	if err == nil || !strings.Contains(string(page), "```text\n"+err.Error()+"\n```") {
		t.Errorf("the page does not show\n%v", err)
	}

	for _, name := range dialectNames() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("dialect %s is not on the page", name)
		}
	}
}
