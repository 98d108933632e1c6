// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit/oci"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestStateMustBeValid(t *testing.T) {
	good := `{"ociVersion":"1.0.2","id":"c1","status":"creating","pid":7,"bundle":"/b","annotations":{"a":"b"},"root":"/r"}`
	s, err := parseState([]byte(good))
	if err != nil || s.ID != "c1" || s.Pid != 7 || s.Bundle != "/b" || s.Annotations["a"] != "b" {
		t.Errorf("%+v, %v", s, err)
	}
	for bad, want := range map[string]string{
		"":                                 "the text is empty",
		"[]":                               "1:1: found an array: must be an object",
		good + "{}":                        "nothing may follow the end of the JSON value",
		`{"id":"c1","bundle":"/b"}`:        "ociVersion is missing",
		`{"ociVersion":"1","bundle":"/b"}`: `id: invalid value ""`,
		`{"ociVersion":"1","id":"../x","bundle":"/b"}`:                 `id: invalid value "../x"`,
		`{"ociVersion":"1","id":"..","bundle":"/b"}`:                   `id: invalid value ".."`,
		`{"ociVersion":"1","id":"a b","bundle":"/b"}`:                  `id: invalid value "a b"`,
		`{"ociVersion":"1","id":"c1","bundle":"b"}`:                    `bundle: invalid value "b"`,
		`{"ociVersion":"1","id":"c1","pid":-1,"bundle":"/b"}`:          "pid: invalid value -1: must be the ID of the container's first process",
		`{"ociVersion":"1","id":"c1","pid":1.5,"bundle":"/b"}`:         "1:35: pid: invalid value 1.5: must be a whole number",
		`{"ociVersion":"1","id":"c1","bundle":"/b","annotations":[1]}`: "1:57: annotations: found an array: must be an object",
	} {
		if _, err := parseState([]byte(bad)); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

func TestStandardInputIsBounded(t *testing.T) {
	for _, n := range []int{0, 1, 64 << 10, 64<<10 + 1, maxInput} {
		if got, err := hostfs.ReadAtMost(strings.NewReader(strings.Repeat("x", n)), maxInput); err != nil || len(got) != n {
			t.Errorf("%d: %d, %v", n, len(got), err)
		}
	}
	if _, err := hostfs.ReadAtMost(strings.NewReader(strings.Repeat("x", maxInput+1)), maxInput); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}

func TestStageIsDetectedFromInput(t *testing.T) {
	for text, want := range map[string]Stage{
		`{"ociVersion":"1","process":{}}`:          Precreate,
		`{"ociVersion":"1","root":{"path":"r"}}`:   Precreate,
		`{"ociVersion":"1","id":"c"}`:              CreateRuntime,
		`{"id":"c","status":"creating"}`:           CreateRuntime,
		`{"id":"c","status":"stopped"}`:            Poststop,
		`{"id":"c","status":"stopped","root":"/"}`: Poststop,
	} {
		if got, err := detectStage([]byte(text)); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "{}", "[]", `{"ociVersion":"1"}`} {
		if got, err := detectStage([]byte(text)); !errdefs.IsInvalidArgument(err) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// A state that is accepted is valid.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"ociVersion":"1.0.2","id":"c1","status":"creating","pid":7,"bundle":"/b","annotations":{"io.kubernetes.cri-o.SandboxID":"s","io.kubernetes.cri-o.Labels":"{\"io.kubernetes.pod.namespace\":\"n\"}"}}`))
	f.Add([]byte(`{"ociVersion":"1","process":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		stage, err := detectStage(text)
		if (stage == "") == (err == nil) {
			t.Errorf("stage %q, error %v", stage, err)
		}
		s, err := parseState(text)
		if err != nil {
			return
		}
		if !validID(s.ID) || strings.ContainsAny(s.ID, "/\x00") || s.Pid < 0 || s.Bundle[0] != '/' {
			t.Errorf("%+v", s)
		}
		subject, err := subjectOf(s.Annotations, s.ID)
		if err == nil && subject.ofPod && s.Annotations[crioSandboxID] != "" && subject.namespace == "" {
			t.Errorf("a pod's container without a namespace: %+v", subject)
		}
	})
}

// The ID from an accepted configuration is valid.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"ociVersion":"1","root":{"path":"r"},"annotations":{"a":"b"},"linux":{"cgroupsPath":"/libpod_parent/libpod-` + strings.Repeat("a1", 32) + `"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := oci.ParseConfig("config.json", text)
		if err != nil {
			return
		}
		if id := podmanID(c.Spec()); !validID(id) {
			t.Errorf("ID %q", id)
		}
	})
}
