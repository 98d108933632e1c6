// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	old "go.podman.io/common/pkg/hooks/0.1.0"
	hooks "go.podman.io/common/pkg/hooks/1.0.0"
)

// readWithPodmanParser reads a file with the parser of Podman and CRI-O, without its check of the program.
func readWithPodmanParser(data []byte) (*hooks.Hook, error) {
	var version struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, err
	}
	read := map[string]func([]byte) (*hooks.Hook, error){hooks.Version: hooks.Read, old.Version: old.Read, "": old.Read}[version.Version]
	if read == nil {
		return nil, fmt.Errorf("version %q", version.Version)
	}
	h, err := read(data)
	if err != nil || h == nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	v := *h
	if v.Hook.Path != "" {
		v.Hook.Path = "/"
	}
	return h, v.Validate(nil)
}

// compareWithPodmanParser fails the test unless Podman's parser accepts what Parse accepts, with the same
// meaning. What Parse alone refuses is not UTF-8, or isStricter says why.
func compareWithPodmanParser(t *testing.T, data []byte, containers ...*Container) {
	t.Helper()
	got, problems := Parse(data, "/d/f.json")
	want, err := readWithPodmanParser(data)
	if got == nil {
		if err == nil && len(data) <= MaxSize && utf8.Valid(data) && !isStricter(want) {
			t.Fatalf("%s\nis refused: %s", data, text(problems))
		}
		if len(problems) == 0 || problems[0].File == "" {
			t.Fatalf("%s\nis refused without a reason: %v", data, problems)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s\nis accepted, but Podman's parser says %v", data, err)
	}
	if got.Path != want.Hook.Path || !reflect.DeepEqual(got.Args, want.Hook.Args) || !reflect.DeepEqual(got.Env, want.Hook.Env) || !reflect.DeepEqual(got.Timeout, want.Hook.Timeout) {
		t.Fatalf("%s\nis %+v, but by Podman's parser %+v", data, got, want.Hook)
	}
	var stages []string
	for _, s := range want.Stages {
		stages = append(stages, strings.Replace(s, "prestart", "createRuntime", 1))
	}
	if !slices.Equal(got.Stages, stages) {
		t.Fatalf("%s\nhas the stages %q, want %q", data, got.Stages, stages)
	}
	for _, c := range containers {
		match, err := want.When.Match(&rspec.Spec{Process: &rspec.Process{Args: c.Args}}, c.Annotations, c.HasBindMounts)
		if err != nil && len(c.Args) > 0 {
			t.Fatal(err)
		}
		if got.When.Match(c) != match {
			t.Fatalf("%s\non %+v: %v, by Podman's parser %v", data, c, !match, match)
		}
	}
}

// isStricter reports whether Parse refuses a hook that Podman's parser accepts: no runtime would run the
// hook, or the policy could not name it.
func isStricter(h *hooks.Hook) bool {
	p := h.Hook.Path
	return !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.Contains(p, "\x00") || h.Hook.Timeout != nil && *h.Hook.Timeout <= 0
}

func containers() []*Container {
	return []*Container{
		{},
		{Args: []string{"/bin/sh", "-c", "x"}, Annotations: map[string]string{"a": "b", "example.com/gpu": "yes"}},
		{Args: []string{"/sbin/init"}, Annotations: map[string]string{"example.com/gpu": "no", "": ""}, HasBindMounts: true},
		{Args: []string{""}, Annotations: map[string]string{"xay": "xby"}, HasBindMounts: true},
	}
}

// Random combinations of conditions match the same containers as with Podman's parser.
func TestMatchAgreesWithPodmansParser(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	matched := 0
	for range 20000 {
		var members []string
		for _, m := range []string{
			`"always":` + pick("true", "false", "null"),
			`"hasBindMounts":` + pick("true", "false"),
			`"annotations":{` + pick("", `"a":"b"`, `"^example\\.com/gpu$":"^yes$"`, `"a":"","gpu":"no"`, `"":""`, `".*":"^no$|b"`) + `}`,
			`"commands":[` + pick("", `"sh"`, `"^/sbin/.*"`, `"x","init$"`, `""`) + `]`,
		} {
			if rnd.IntN(2) == 0 {
				members = append(members, m)
			}
		}
		data := fmt.Sprintf(`{"version":"1.0.0","hook":{"path":"/h"},"when":{%s},"stages":["poststop"]}`, strings.Join(members, ","))
		if rnd.IntN(4) == 0 {
			data = fmt.Sprintf(`{"version":"0.1.0","hook":"/h","stages":["prestart"]%s%s%s}`, pick("", `,"cmds":["sh$"]`), pick("", `,"annotations":["^b$","yes"]`), pick("", `,"hasbindmounts":true`))
		}
		compareWithPodmanParser(t, []byte(data), containers()...)
		h, _ := Parse([]byte(data), "f.json")
		for _, c := range containers() {
			if h.When.Match(c) {
				matched++
			}
		}
	}
	if matched < 1000 {
		t.Errorf("%d matches only", matched)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"version":"1.0.0","hook":{"path":"/usr/bin/h","args":["h","prestart"],"env":["A=b"],"timeout":5},"when":{"annotations":{"^a$":"b"},"commands":[".*/init$"],"hasBindMounts":true,"always":true},"stages":["prestart","poststop"]}`,
		`{"version":"0.1.0","hook":"/h","arguments":["--x"],"stage":["prestart"],"cmd":["a"],"annotation":["b"],"hasbindmounts":true}`,
		`{"VERSION":"1.0.0","Hook":{"PATH":"/h"},"when":{"Always":true},"stages":["poststop"],"x":1}`,
		`{"version":"1.0.0","hook":null,"when":null,"stages":null}`,
		`null`, `[]`, ``, `{"version":"1.0.0","hook":{"path":"/h"},"when":{"annotations":{"(":"["}},"stages":["precreate"]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { compareWithPodmanParser(t, data, containers()...) })
}
