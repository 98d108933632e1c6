// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/config/policy"
)

const fullRule = `
policy:
  rules:
    - name: all-keys
      mode: audit
      for: {namespaces: ["", a], podLabels: {x: ""}, runtimeClasses: [""], images: ["r/*"]}
      allow:
        cdi: [a/b=c]
        sockets: [/run/x/*]
        devices: [/dev/x]
        mounts: [{source: /srv/*, destination: /data, readOnly: true}, {source: /opt}]
        hooks: [/usr/libexec/x]
        networks: [a/b]
      deny: {mounts: [{source: /etc/**}]}
      limits: {container: {cdi: 1, devices: 2, sockets: 3, mounts: 4, hooks: 5}, pod: {sockets: 1048576, ports: 6}, memlock: 2Gi}
validate: {devices: true, mounts: true, except: [10-x]}
compat: {deviceInjector: true}
`

func TestRuleWithAllKeysIsRead(t *testing.T) {
	c, err := Parse([]byte(fullRule), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Rule{
		Name: "all-keys", Mode: policy.Audit,
		For: policy.Subjects{Namespaces: []string{"", "a"}, PodLabels: map[string]string{"x": ""}, RuntimeClasses: []string{""}, Images: []string{"r/*"}},
		Allow: policy.Allow{CDI: []string{"a/b=c"}, Sockets: []string{"/run/x/*"}, Devices: []string{"/dev/x"},
			Mounts: []policy.Mount{{Source: "/srv/*", Destination: "/data", ReadOnly: true}, {Source: "/opt"}}, Hooks: []string{"/usr/libexec/x"}, Networks: []string{"a/b"}},
		Deny:   policy.Allow{Mounts: []policy.Mount{{Source: "/etc/**"}}},
		Limits: policy.Limits{Container: policy.Limit{CDI: 1, Devices: 2, Sockets: 3, Mounts: 4, Hooks: 5}, Pod: policy.Limit{Sockets: 1 << 20, Ports: 6}, Memlock: 2 << 30},
	}
	if d := cmp.Diff([]policy.Rule{want}, c.Policy.Rules); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if !c.Compat.DeviceInjector || !c.Validate.Devices || !c.Validate.Mounts || c.Validate.Except[0] != "10-x" {
		t.Errorf("got %+v, %+v", c.Compat, c.Validate)
	}
}

func TestFaultyRulesAreRefused(t *testing.T) {
	for old, tc := range map[string]struct{ with, want string }{
		"cdi: 1":                 {"cdi: 0", "policy.rules[0].limits.container.cdi: invalid value 0, which YAML reads as a number: must be a whole number from 1"},
		"devices: 2":             {"devices: -2", "must be a whole number from 1"},
		"sockets: 3":             {"sockets: 3.5", "must be a whole number from 1"},
		"sockets: 1048576":       {"sockets: 1048577", "must be a whole number from 1 to 1048576"},
		"hooks: 5":               {`hooks: "5"`, "must be a whole number from 1"},
		"hooks: 5}":              {"hooks: 5, ports: 1}", `policy.rules[0].limits.container: unknown key "ports"`},
		"memlock: 2Gi":           {"memlock: 2G", `policy.rules[0].limits.memlock: invalid value "2G": must be "unlimited" or a size from "64Ki" to "64Ti"`},
		"memlock: 2Gi}":          {"memlock: [2Gi]}", "policy.rules[0].limits.memlock: found a list: must be"},
		"ports: 6":               {"ports: 0", "policy.rules[0].limits.pod.ports: invalid value 0"},
		"mounts: 4":              {"mount: 4", "did you mean mounts?"},
		"{source: /opt}":         {"{destination: /opt}", "policy.rules[0].allow.mounts[1].source: found nothing: a mount has a source"},
		"readOnly: true":         {"readonly: true", "did you mean readOnly?"},
		"[{source: /etc/**}]":    {"[/etc/**]", "policy.rules[0].deny.mounts[0]: invalid value \"/etc/**\": must be an object"},
		"mode: audit":            {"mode: off", "policy.rules[0].mode: invalid value"},
		"images: [\"r/*\"]":      {"images: [\"\"]", "must be a string that is not empty"},
		"except: [10-x]":         {"except: [x]", "must be the plugin's index and name"},
		"{deviceInjector: true}": {"{deviceInjector: yes}", "must be true or false"},
	} {
		text := strings.Replace(fullRule, old, tc.with, 1)
		if text == fullRule {
			t.Fatalf("%s is not in the rule", old)
		}
		if c, err := Parse([]byte(text), "c.yaml"); err == nil || c != nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.with, err, tc.want)
		}
	}
}
