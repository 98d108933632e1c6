// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/quantity"
)

// Every example of the page compiles, and the first gives the refusals shown.
func TestExamplesOfPolicyPageAreTrue(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var (
		policies []*Policy
		messages []string
	)
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		if block[1] == "cases" {
			continue // test/script runs them
		}
		if block[1] == "text" {
			messages = append(messages, strings.TrimSuffix(block[2], "\n"))
			continue
		}
		var file struct {
			Sockets, Vswitches yaml.Node // the tests of docs check them
			Policy             struct {
				Mode  Mode
				Rules []struct {
					Name string
					For  struct {
						Namespaces     []string
						PodLabels      map[string]string `yaml:"podLabels"`
						RuntimeClasses []string          `yaml:"runtimeClasses"`
						Images         []string
					}
					Mode        Mode
					Allow, Deny yamlAllow
					Limits      struct {
						Container, Pod Limit
						Memlock        string
					}
				}
			}
		}
		decoder := yaml.NewDecoder(strings.NewReader(block[2]))
		decoder.KnownFields(true)
		if err := decoder.Decode(&file); err != nil {
			t.Fatalf("%v in\n%s", err, block[2])
		}
		var rules []Rule
		for _, r := range file.Policy.Rules {
			memlock, ok := quantity.ParseMemory(r.Limits.Memlock)
			if !ok && r.Limits.Memlock != "" {
				t.Errorf("invalid memlock %q in\n%s", r.Limits.Memlock, block[2])
			}
			rules = append(rules, Rule{Name: r.Name, For: Subjects(r.For), Mode: r.Mode, Allow: r.Allow.allow(), Deny: r.Deny.allow(),
				Limits: Limits{Container: r.Limits.Container, Pod: r.Limits.Pod, Memlock: memlock}})
		}
		if file.Policy.Mode == "" {
			file.Policy.Mode = Enforce
		}
		p, err := New(source, file.Policy.Mode, rules)
		if err != nil {
			t.Fatalf("%v in\n%s", err, block[2])
		}
		policies = append(policies, p)
	}
	if len(policies) < 2 || len(messages) != 2 {
		t.Fatalf("found %d policies and %d messages", len(policies), len(messages))
	}
	_, first := policies[0].Socket(Subject{Namespace: "dpdk-a", Pod: "fwd-0", Container: "app"}, "/var/run/ovs/x.sock")
	_, second := policies[0].CDI(Subject{Namespace: "default", Pod: "fwd-0", Container: "app"}, "vendor.com/net=vf0")
	for i, err := range []error{first, second} {
		if err == nil || err.Error() != messages[i] {
			t.Errorf("the page says\n%s\nand it is\n%v", messages[i], err)
		}
	}
	gold := Subject{Namespace: "telco", Labels: map[string]string{"tier": "gold-2"}, Network: "telco/east-1"}
	if _, err := policies[1].Socket(gold, "/var/run/vsw/east/a.sock"); err != nil {
		t.Error(err)
	}
}
