// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config/policy"
)

func diff(want, got *Config) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{}))
}

const full = `# everything
cdi:
  specDirs: [/opt/cdi, /run/cdi]
  aliases: {fpga: xilinx.com/fpga, nvidia: nvidia.com/mig}
  extensions: [.json]
sockets:
  roots: [/var/run/jackfield/sockets, /var/run/vsw]
  access: group
deviceInfo: {cniDir: /a/cni, dpDir: /a/dp}
multus: {cacheDir: /a/multus}
kubelet: {podResourcesSocket: /a/kubelet.sock, podsSocket: /a/pods.sock, pluginsDir: /a/plugins, required: true}
stateDir: /run/jf
dialects:
  - match: {resource: "example.com/vhost-*"}
    use: virtio-device-plugin
  - match: {network: "tenant-*/fast"}
    creator: application
    path: container
policy:
  mode: audit
  rules:
    - name: dpdk-tenants
      for:
        namespaces: ["dpdk-*"]
        podLabels: {app.kubernetes.io/name: fwd, tier: ""}
        runtimeClasses: [kata]
      allow:
        cdi: ["vendor.com/net=*"]
        sockets: ["/var/run/vsw/**"]
        devices: ["/dev/vfio/*", "/dev/vhost-vdpa-*"]
        networks: ["*"]
`

func TestParseReadsEveryKey(t *testing.T) {
	want := Default()
	want.CDI.SpecDirs = []string{"/opt/cdi", "/run/cdi"}
	want.CDI.Aliases["fpga"] = "xilinx.com/fpga"
	want.CDI.Aliases["nvidia"] = "nvidia.com/mig"
	want.CDI.Extensions = []string{".json"}
	want.Sockets = Sockets{Roots: []string{"/var/run/jackfield/sockets", "/var/run/vsw"}, Access: "group", Staging: "auto"}
	want.DeviceInfo = DeviceInfo{CNIDir: "/a/cni", DPDir: "/a/dp"}
	want.Multus.CacheDir = "/a/multus"
	want.Kubelet = Kubelet{PodResourcesSocket: "/a/kubelet.sock", PodsSocket: "/a/pods.sock", PluginsDir: "/a/plugins", Required: true}
	want.StateDir = "/run/jf"
	want.Dialects = []Dialect{
		{Match: DialectMatch{Resource: "example.com/vhost-*"}, Use: "virtio-device-plugin"},
		{Match: DialectMatch{Network: "tenant-*/fast"}, Use: Specification, Creator: SideApplication, Path: SideContainer},
	}
	want.Policy = Policy{Mode: policy.Audit, Rules: []policy.Rule{{
		Name: "dpdk-tenants",
		For: policy.Subjects{
			Namespaces:     []string{"dpdk-*"},
			PodLabels:      map[string]string{"app.kubernetes.io/name": "fwd", "tier": ""},
			RuntimeClasses: []string{"kata"},
		},
		Allow: policy.Allow{
			CDI:      []string{"vendor.com/net=*"},
			Sockets:  []string{"/var/run/vsw/**"},
			Devices:  []string{"/dev/vfio/*", "/dev/vhost-vdpa-*"},
			Networks: []string{"*"},
		},
	}}}

	got, err := Parse([]byte(full), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	for field, place := range map[string]string{
		"policy.rules[0].allow.devices[1]": "c.yaml:30:34",
		"policy.rules[0].name":             "c.yaml:22:13",
		"policy.rules[0].allow":            "c.yaml:28:9",
		"policy.rules[0].allow.hooks[3]":   "c.yaml:28:9", // not there: what is around it
		"stateDir":                         "c.yaml:12:11",
		"nothing.at.all":                   "c.yaml",
	} {
		if got := got.Position(field); got != place {
			t.Errorf("Position(%q) = %s, want %s", field, got, place)
		}
	}
	if got.File() != "c.yaml" {
		t.Errorf("File() = %q", got.File())
	}
}

func TestParseEmptyIsDefault(t *testing.T) {
	for _, content := range []string{"", "\n", "# nothing yet\n", "---\n", "{}", "null\n", "dialects: []\npolicy: {rules: []}\n"} {
		got, err := Parse([]byte(content), "c.yaml")
		if err != nil {
			t.Errorf("%q: %v", content, err)
			continue
		}
		if d := diff(Default(), got); d != "" {
			t.Errorf("%q: -want +got\n%s", content, d)
		}
	}
}

// What one caller does to its copy must not reach another's.
func TestDefaultIsFresh(t *testing.T) {
	a := Default()
	a.CDI.Aliases["x"] = "y/z"
	a.CDI.SpecDirs[0] = "/x"
	a.Sockets.Roots[0] = "/x"
	if d := diff(Default(), a); d == "" {
		t.Error("the change did not show at all")
	}
	if _, ok := Default().CDI.Aliases["x"]; ok || Default().CDI.SpecDirs[0] == "/x" {
		t.Error("Default shares state between calls")
	}
}

func TestFaultyConfigurationsHavePlaceAndRule(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"unknown key", "socket: {}\n",
			`c.yaml:1:1: unknown key "socket"; the keys here are cdi, sockets, deviceInfo, cni, multus, kubelet, hook, hooks, runtime, missed, stateDir, dialects, vswitches, metrics, audit, policy, validate, compat; did you mean sockets?`},
		{"unknown key by case", "statedir: /run/x\n",
			`c.yaml:1:1: unknown key "statedir"; the keys here are cdi, sockets, deviceInfo, cni, multus, kubelet, hook, hooks, runtime, missed, stateDir, dialects, vswitches, metrics, audit, policy, validate, compat; did you mean stateDir?`},
		{"unknown key inside", "cdi:\n  specDir: [/etc/cdi]\n",
			`c.yaml:2:3: cdi: unknown key "specDir"; the keys here are specDirs, aliases, extensions; did you mean specDirs?`},
		{"duplicate key", "stateDir: /run/a\nmultus: {}\nstateDir: /run/b\n",
			`c.yaml:3:1: stateDir: found the key a second time: it is already in line 1`},
		{"wrong type, number", "stateDir: 7\n", `c.yaml:1:11: stateDir: invalid value 7, which YAML reads as a number: must be a string; put it in quotes`},
		{"size of a directory", "sockets: {directorySize: 1MB}\n",
			`c.yaml:1:26: sockets.directorySize: invalid value "1MB": must be a size from "4Ki" to "1Gi": a number of bytes, or of Ki, Mi or Gi`},
		{"wrong type, list", "sockets: [a]\n", `c.yaml:1:10: sockets: found a list: must be an object`},
		{"wrong type, object", "cdi: {specDirs: {}}\n", `c.yaml:1:17: cdi.specDirs: found an object: must be a list`},
		{"wrong type, string", "policy: enforce\n", `c.yaml:1:9: policy: invalid value "enforce": must be an object`},
		{"nothing", "policy:\nstateDir: /run/x\n", `c.yaml:1:8: policy: found nothing: must be an object`},
		{"nothing for a string", "stateDir:\n", `c.yaml:1:10: stateDir: found nothing: must be a string`},
		{"key is a number", "1: x\n", `c.yaml:1:1: found 1, which YAML reads as a number: a key must be a string; put it in quotes if it is one`},
		{"the file is a list", "- a\n", `c.yaml:1:1: found a list: must be an object`},
		{"the file is a string", "hello\n", `c.yaml:1:1: invalid value "hello": must be an object`},
		{"relative path", "stateDir: run/x\n", `c.yaml:1:11: stateDir: invalid value "run/x": must be an absolute path`},
		{"unclean path", "multus: {cacheDir: /var/../etc}\n",
			`c.yaml:1:20: multus.cacheDir: invalid value "/var/../etc": must be a path without //, /./, /../ and without / at the end; this is "/etc"`},
		{"root path", "multus: {cacheDir: /}\n", `c.yaml:1:20: multus.cacheDir: invalid value "/": must be a path below /`},
		{"control characters", "multus: {cacheDir: \"/a\\nb\"}\n", `c.yaml:1:20: multus.cacheDir: found "/a\nb": a path here holds no control characters`},
		{"shared root", "sockets: {roots: [/var/run/vsw, /tmp]}\n",
			`c.yaml:1:33: sockets.roots[1]: invalid value "/tmp": must be a directory of its own for sockets, not one that the system shares`},
		{"system root", "sockets: {roots: [/proc/1/root]}\n", `c.yaml:1:19: sockets.roots[0]: found "/proc/1/root": sockets are not delivered from /proc`},
		{"system state", "stateDir: /run\n", `c.yaml:1:11: stateDir: invalid value "/run": must be a directory of its own for the state, not one that the system shares`},
		{"root over the state", "stateDir: /run/jackfield/sockets/x\n",
			`c.yaml:1:11: sockets.roots[0]: found "/var/run/jackfield/sockets": the directory must not contain stateDir, "/run/jackfield/sockets/x", nor be in its containers/`},
		{"root in the staging", "sockets:\n  roots: [/run/jackfield/containers/x]\n",
			`c.yaml:2:11: sockets.roots[0]: found "/run/jackfield/containers/x": the directory must not contain stateDir, "/run/jackfield", nor be in its containers/`},
		{"twice in a list", "cdi: {specDirs: [/a, /b, /a]}\n", `c.yaml:1:26: cdi.specDirs[2]: found "/a": it is already in the list, in line 1`},
		{"empty list", "cdi: {specDirs: []}\n", `c.yaml:1:17: cdi.specDirs: found an empty list: give at least one, or leave the key out`},
		{"extension", "cdi: {extensions: [json]}\n", `c.yaml:1:20: cdi.extensions[0]: invalid value "json": must be one of .json, .yaml, .yml`},
		{"alias name", "cdi: {aliases: {a.b: v.com/c}}\n",
			`c.yaml:1:17: cdi.aliases: found "a.b": an alias begins with a letter, ends with a letter or digit, and holds letters, digits, '_', '-' only`},
		{"alias kind", "cdi: {aliases: {a: v.com}}\n", `c.yaml:1:20: cdi.aliases.a: invalid value "v.com": must be vendor.com/class`},
		{"enum", "sockets: {access: acls}\n", `c.yaml:1:19: sockets.access: invalid value "acls": must be one of acl, group, owner; did you mean acl?`},
		{"mode", "policy: {mode: off}\n", `c.yaml:1:16: policy.mode: invalid value "off": must be one of enforce, audit`},
		{"string for a boolean", "kubelet: {required: \"true\"}\n", `c.yaml:1:21: kubelet.required: invalid value "true": must be true or false`},
		{"YAML 1.1's boolean", "kubelet: {required: yes}\n", `c.yaml:1:21: kubelet.required: invalid value "yes": must be true or false`},
		{"nothing for a boolean", "kubelet:\n  required:\n", `c.yaml:2:12: kubelet.required: found nothing: must be true or false`},
		{"boolean mode", "policy: {mode: false}\n", `c.yaml:1:16: policy.mode: invalid value false, which YAML reads as a boolean: must be a string; put it in quotes`},
		{"dialect without match", "dialects:\n  - use: ovs-cni\n", `c.yaml:2:5: dialects[0].match: found nothing: say what the dialect is for: network, resource or both, or driver`},
		{"dialect of a driver and a network", "dialects:\n  - {match: {driver: a, network: b}, path: host}\n",
			`c.yaml:2:5: dialects[0].match: found driver beside network or resource: a claim's device has a driver, and no other device has: write two dialects`},
		{"dialect without difference", "dialects:\n  - match: {network: a/b}\n", `c.yaml:2:5: dialects[0]: found nothing but a match: say what is different: use, creator or path`},
		{"unknown dialect", "dialects:\n  - {match: {network: a/b}, use: ovscni}\n",
			`c.yaml:2:34: dialects[0].use: invalid value "ovscni": must be one of 6wind, device-metadata, kubevirt, ovs-cni, specification, virtio-device-plugin; did you mean ovs-cni?`},
		{"dialect pattern", "dialects:\n  - {match: {network: \"a/[b]\"}, use: ovs-cni}\n",
			`c.yaml:2:23: dialects[0].match.network: found "a/[b]": a pattern holds no space, no control character and none of ? [ ] { } \ ; only * and ** are special`},
		{"rule without for", "policy:\n  rules:\n    - name: a\n      allow: {cdi: [a]}\n", `c.yaml:3:7: policy.rules[0].for: found nothing: a rule has name, for, and allow, deny or limits`},
		{"rule with nothing", "policy: {rules: [{}]}\n", strings.Join([]string{
			`c.yaml:1:18: policy.rules[0].name: found nothing: a rule has name, for, and allow, deny or limits`,
			`c.yaml:1:18: policy.rules[0].for: found nothing: a rule has name, for, and allow, deny or limits`,
			`c.yaml:1:18: policy.rules[0].allow: found nothing: a rule has name, for, and allow, deny or limits`}, "\n")},
		{"empty labels", "policy: {rules: [{name: a, for: {podLabels: {}}, allow: {cdi: [a]}}]}\n",
			`c.yaml:1:45: policy.rules[0].for.podLabels: found an empty object: give at least one, or leave the key out`},
		{"boolean label", "policy: {rules: [{name: a, for: {podLabels: {x: true}}, allow: {cdi: [a]}}]}\n",
			`c.yaml:1:49: policy.rules[0].for.podLabels.x: invalid value true, which YAML reads as a boolean: must be a string; put it in quotes`},
		{"anchor and alias", "stateDir: &a /run/x\nmultus: {cacheDir: *a}\n", strings.Join([]string{
			`c.yaml:1:11: found the anchor "a": YAML anchors are not allowed; repeat the value`,
			`c.yaml:2:20: found the alias "a": YAML aliases are not allowed; repeat the value`}, "\n")},
		{"merge key", "multus:\n  <<: {cacheDir: /a}\n", `c.yaml:2:3: multus: found the merge key <<: YAML merge keys are not allowed; repeat the keys`},
		{"tag", "stateDir: !!str 7\n", `c.yaml:1:11: found the tag "!!str": YAML tags are not allowed`},
		{"two documents", "stateDir: /run/x\n---\nstateDir: /run/y\n", `c.yaml:2:1: a second YAML document; only one is allowed`},
		{"not YAML", "cdi: {specDirs: [\n", `c.yaml:1: not YAML: did not find expected node content`},
		{"tab", "cdi:\n\tspecDirs: [/a]\n", `c.yaml:2: not YAML: found character that cannot start any token`},
		{"not UTF-8", "stateDir: /run/\xff\n", `c.yaml: the file is not UTF-8`},
		{"several, in order", "stateDir: x\ncdi: {specDirs: [y]}\nbogus: 1\n", strings.Join([]string{
			`c.yaml:1:11: stateDir: invalid value "x": must be an absolute path`,
			`c.yaml:2:18: cdi.specDirs[0]: invalid value "y": must be an absolute path`,
			`c.yaml:3:1: unknown key "bogus"; the keys here are cdi, sockets, deviceInfo, cni, multus, kubelet, hook, hooks, runtime, missed, stateDir, dialects, vswitches, metrics, audit, policy, validate, compat`}, "\n")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Parse([]byte(tc.content), "c.yaml")
			if err == nil {
				t.Fatal("no error")
			}
			if c != nil {
				t.Error("a configuration beside the error")
			}
			if d := cmp.Diff(tc.want, err.Error()); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Error("not errdefs.ErrInvalidArgument")
			}
			var fault *diag.Diagnostic
			if !errors.As(err, &fault) || fault.File != "c.yaml" {
				t.Errorf("not a diagnostic with the file: %#v", err)
			}
		})
	}
}

func TestParseBoundsItsMessage(t *testing.T) {
	var b strings.Builder
	for range 5000 {
		b.WriteString(strings.Repeat("x", 150) + "\x7f\u202e: {}\n")
	}
	_, err := Parse([]byte(b.String()), "c.yaml")
	if err == nil {
		t.Fatal("no error")
	}
	if len(err.Error()) > 8<<10 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
	b.Reset()
	b.WriteString("sockets:\n  roots:\n")
	for range 50 {
		b.WriteString("    - \"\u202e" + strings.Repeat("y", 300) + "\"\n")
	}
	_, err = Parse([]byte(b.String()), "c.yaml")
	if err == nil || !strings.Contains(err.Error(), "and 30 more") || strings.Contains(err.Error(), "\u202e") {
		t.Errorf("got %v", err)
	}
}

// Documents made to cost much must cost little.
func TestParseBoundsHostileFiles(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		prev := "*" + string(c-1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat(prev+",", 9), ",") + "]\n"
	}
	for name, content := range map[string]string{
		"alias bomb":     bomb,
		"flow depth":     strings.Repeat("[", MaxSize),
		"object depth":   strings.Repeat("{a: ", MaxSize/4),
		"block depth":    strings.Repeat("- ", MaxSize/2),
		"too large":      strings.Repeat("#", MaxSize+1),
		"many keys":      strings.Repeat("a: b\n", MaxSize/5),
		"comments":       strings.Repeat("# x\n", MaxSize/4) + "a: b",
		"commented list": "cdi:\n" + strings.Repeat("# x\n- a\n", MaxSize/8-10),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			testkit.Cheap(t, 20*time.Second, func() { _, err = Parse([]byte(content), "c.yaml") })
			if err == nil {
				t.Error("no error")
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fullRule))
	f.Add([]byte(full))
	f.Add([]byte(""))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? [a]\n: {b: c}\n"))
	f.Add([]byte("%YAML 1.1\n---\n!!map {<<: {}}\n"))
	f.Add([]byte("policy: {rules: [{name: a, for: {podLabels: {x: y}}, allow: {cdi: [a]}}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, "c.yaml")
		again, errAgain := Parse(data, "c.yaml")
		if (err == nil) == (c == nil) {
			t.Fatalf("got %v and %v", c, err)
		}
		if err != nil {
			if !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Fatalf("not errdefs.ErrInvalidArgument: %v", err)
			}
			if errAgain == nil || err.Error() != errAgain.Error() {
				t.Fatalf("two runs: %v and %v", err, errAgain)
			}
			if len(err.Error()) > 16<<10 {
				t.Fatalf("a message of %d bytes", len(err.Error()))
			}
			return
		}
		if !reflect.DeepEqual(c, again) {
			t.Fatal("two runs differ")
		}
		if len(c.CDI.SpecDirs) == 0 || c.StateDir == "" || c.Policy.Mode == "" || c.Sockets.Access == "" {
			t.Fatalf("incomplete: %+v", c)
		}
		for _, r := range c.Policy.Rules {
			if r.Name == "" {
				t.Fatalf("a rule without a name: %+v", r)
			}
		}
	})
}
