// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

func TestFaultyHookFilesAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, content, want string }{
		{"empty", ``, `f.json:1:1: found the end of the text: the text is empty; a JSON value is required`},
		{"cut", "{\n \"version\": \"1.0.0\",\n", `f.json:3:1: found the end of the text: a key in double quotation marks is required: the text is cut short`},
		{"trailing", `{"version":"1.0.0"}x`, `f.json:1:20: found 'x': nothing may follow the end of the JSON value`},
		{"comma", "{\"version\":\"1.0.0\",\n \"stages\":[],}", `f.json:2:14: found '}': a value is required after the comma: remove the comma before it`},
		{"null", `null`, `f.json:1:1: version: found nothing: want "version": "1.0.0"; without it the file has the old schema 0.1.0, whose parser says: missing required property: hook`},
		{"another version", `{"version":"2.0.0"}`, `f.json:1:12: version: invalid value "2.0.0": must be "1.0.0"`},
		{"a number as path", "{\"version\":\"1.0.0\",\n\"hook\":{\"path\":7}}", `f.json:1:1: stages: missing: must be a list of prestart, createRuntime, createContainer, startContainer, poststart, poststop
f.json:2:16: hook.path: found a number: must be a string`},
		{"a list as hook", `{"version":"1.0.0","hook":[]}`, `f.json:1:1: stages: missing: must be a list of prestart, createRuntime, createContainer, startContainer, poststart, poststop
f.json:1:27: hook: found an array: must be an object`},
		{"a string as stages", `{"version":"1.0.0","hook":{"path":"/h"},"stages":"prestart"}`, `f.json:1:50: stages: found a string: must be a list of strings`},
		{"a word as always", `{"version":"1.0.0","when":{"always":"yes"}}`, `f.json:1:1: hook.path: missing: must be the host path of the hook's program
f.json:1:1: stages: missing: must be a list of prestart, createRuntime, createContainer, startContainer, poststart, poststop
f.json:1:37: when.always: found a string: must be true or false`},
		{"faults beside wrong types", `{"version":"1.0.0","hook":{"path":"/h","args":"x","timeout":"9"},"when":{"annotations":{"a":1},"commands":["("]},"stages":["now",3]}`,
			`f.json:1:47: hook.args: found a string: must be a list of strings
f.json:1:61: hook.timeout: found a string: must be a whole number
f.json:1:93: when.annotations.a: found a number: must be a string
f.json:1:108: when.commands[0]: found "(": not a regular expression: error parsing regexp: missing closing ): ` + "`(`" + `
f.json:1:124: stages[0]: invalid value "now": must be one of prestart, createRuntime, createContainer, startContainer, poststart, poststop
f.json:1:130: stages[1]: found a number: must be a string`},
		{"nothing", `{"version":"1.0.0","when":{"always":true}}`, "f.json:1:1: hook.path: missing: must be the host path of the hook's program\nf.json:1:1: stages: missing: must be a list of prestart, createRuntime, createContainer, startContainer, poststart, poststop"},
		{"a relative path", `{"version":"1.0.0","hook":{"path":"bin/h"},"when":{"always":true},"stages":["poststop"]}`, `f.json:1:35: hook.path: invalid value "bin/h": must be an absolute host path`},
		{"an unclean path", `{"version":"1.0.0","hook":{"path":"/a/../h"},"when":{"always":true},"stages":["poststop"]}`, `f.json:1:35: hook.path: invalid value "/a/../h": must be a path without //, /./, /../ and without / at the end; this is "/h"`},
		{"a time-out of 0", `{"version":"1.0.0","hook":{"path":"/h","timeout":0},"when":{"always":true},"stages":["poststop"]}`, `f.json:1:50: hook.timeout: must be a number of seconds greater than 0, or be omitted`},
		{"a stage of Podman's", `{"version":"1.0.0","hook":{"path":"/h"},"when":{"always":true},"stages":["poststop","precreate"]}`, `f.json:1:85: stages[1]: found "precreate": a stage that only Podman has; such a file belongs in a directory that only Podman reads`},
		{"an unknown stage", `{"version":"1.0.0","hook":{"path":"/h"},"when":{"always":true},"stages":["preStart"]}`, `f.json:1:74: stages[0]: invalid value "preStart": must be one of prestart, createRuntime, createContainer, startContainer, poststart, poststop`},
		{"expressions", `{"version":"1.0.0","hook":{"path":"/h"},"when":{"annotations":{"a[":"b("},"commands":["c","*"]},"stages":["poststop"]}`,
			"f.json:1:64: when.annotations[\"a[\"]: found \"a[\": not a regular expression: error parsing regexp: missing closing ]: `[`\n" +
				"f.json:1:69: when.annotations[\"a[\"]: found \"b(\": not a regular expression: error parsing regexp: missing closing ): `b(`\n" +
				"f.json:1:91: when.commands[1]: found \"*\": not a regular expression: error parsing regexp: missing argument to repetition operator: `*`"},
		{"too large", strings.Repeat(" ", MaxSize+1), `f.json: the file has 262145 bytes, more than the 262144 allowed: describe one hook in each file`},
		{"the old schema", `{"version":"0.1.0","hook":"/h","stage":["prestart"],"stages":["prestart"]}`, `f.json: cannot set both 'stage' and 'stages'`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, problems := Parse([]byte(tc.content), "f.json")
			if h != nil {
				t.Error("there is a hook")
			}
			if got := text(problems); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			for _, p := range problems {
				if p.IsWarning() || !errdefs.IsInvalidArgument(p) {
					t.Errorf("%v: warning %v", p, p.IsWarning())
				}
			}
		})
	}
}

func text(problems diag.List) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

func TestHarmlessFaultsAreWarnings(t *testing.T) {
	for content, want := range map[string]string{
		`{"version":"1.0.0","hook":{"path":"/h"},"when":{},"stages":["poststop"]}`:                                `:1:48: warning: when: found no condition`,
		`{"version":"1.0.0","hook":{"path":"/h"},"when":{"always":false},"stages":["poststop"]}`:                  `:1:58: warning: when.always: found false`,
		`{"version":"1.0.0","hook":{"path":"/h"},"when":{"hasBindMounts":false},"stages":["poststop"]}`:           `:1:65: warning: when.hasBindMounts: found false`,
		`{"version":"1.0.0","hook":{"path":"/h"},"when":{"always":true},"stages":[]}`:                             `:1:73: warning: stages: found an empty list`,
		`{"version":"1.0.0","hook":{"path":"/h"},"when":{"always":true,"annotation":{}},"stages":["poststop"]}`:   `:1:63: warning: when."annotation": found an unknown key`,
		`{"version":"1.0.0","hook":{"path":"/h","arg":[]},"when":{"always":true},"stages":["poststop"]}`:          `:1:40: warning: hook."arg": found an unknown key`,
		`{"version":"1.0.0","hook":{"path":"/h"},"when":{"always":true},"stages":["poststop"],"comment":"hello"}`: `:1:86: warning: "comment": found an unknown key`,
	} {
		h, problems := Parse([]byte(content), "/d/f.json")
		if h == nil || len(problems) != 1 || !problems[0].IsWarning() || !strings.Contains(problems[0].Error(), "/d/f.json"+want) {
			t.Errorf("%s: %v, %s", content, h, text(problems))
		}
	}
}

func TestParseReadsWholeHook(t *testing.T) {
	h, problems := Parse([]byte(`{"version":"1.0.0","hook":{"path":"/h","args":["h","x"],"env":["A=1"],"timeout":3},
 "when":{"always":true},"stages":["prestart","createContainer","startContainer","poststart","poststop"]}`), "/d/10-a.json")
	if h == nil || len(problems) > 0 {
		t.Fatalf("%s", text(problems))
	}
	if h.Name != "10-a.json" || h.Path != "/h" || fmt.Sprint(h.Args, h.Env, *h.Timeout, h.Stages) != "[h x] [A=1] 3 [createRuntime createContainer startContainer poststart poststop]" {
		t.Errorf("got %+v", h)
	}
}

func TestPodAsksForHookByAnnotation(t *testing.T) {
	parse := func(when string) *Hook {
		h, problems := Parse([]byte(`{"version":"1.0.0","hook":{"path":"/h"},"when":`+when+`,"stages":["poststop"]}`), "f.json")
		if h == nil {
			t.Fatal(text(problems))
		}
		return h
	}
	pod := map[string]string{"example.com/gpu": "yes"}
	for when, want := range map[string]bool{
		`{"always":true}`: false,
		`{"annotations":{"^example\\.com/gpu$":"^yes$"}}`:                      true,
		`{"annotations":{"gpu":"y"},"commands":["x"]}`:                         true,
		`{"annotations":{"gpu":"no"}}`:                                         false,
		`{"annotations":{"gpu":"","^io\\.kubernetes\\.cri":""},"always":true}`: false,
	} {
		if got := parse(when).AskedBy(pod); got != want {
			t.Errorf("%s: %v", when, got)
		}
	}
}
