// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/report/manifest"
)

// caseFile is one file of test cases.
type caseFile struct {
	Config string     `json:"config"`
	Cases  []caseSpec `json:"cases"`
}

// caseSpec is one case: the requests of a container, and the expected outcome.
type caseSpec struct {
	Name string `json:"name"`
	// Pod is a manifest, relative to the file. It replaces For; the requests of its annotations are added
	// to Ask.
	Pod       string          `json:"pod"`
	Container string          `json:"container"` // only this one of Pod
	For       *policy.Subject `json:"for"`
	Ask       Query           `json:"ask"`
	Count     *policy.Usage   `json:"count"`  // how much the container gets
	PodHas    policy.Usage    `json:"podHas"` // and its pod's other containers have
	Want      Outcome         `json:"want"`
	Rule      string          `json:"rule"`    // that grants or denies it, or comes closest
	Message   string          `json:"message"` // is in the refusal
}

// CaseResult is one case that was run.
type CaseResult struct {
	File   string   `json:"file"`
	Name   string   `json:"name"`
	Passed bool     `json:"passed"`
	Diff   []string `json:"diff,omitempty"` // lines: the expectation, the result
}

// RunCases runs the test cases in a file, or in the files of a directory; "-" is standard input. load returns the
// policy of a configuration file that cases name, or the caller's own for "".
func RunCases(name string, stdin io.Reader, load func(configFile string) (*Policy, error)) ([]CaseResult, error) {
	var results []CaseResult
	files, err := manifest.FilesIn(name)
	if err != nil {
		return nil, fmt.Errorf("read test cases in %q: %w", name, err)
	}
	for _, file := range files {
		if file != name && (filepath.Base(file)[0] == '.' || filepath.Ext(file) == ".json") {
			continue
		}
		data, err := manifest.ReadInput(file, stdin)
		if err != nil {
			return nil, fmt.Errorf("read test cases in %q: %w", file, err)
		}
		// Manifests and configurations may lie beside the cases.
		if file != name && !hasCases(data) {
			continue
		}
		cf, err := parseCases(file, data)
		if err != nil {
			return nil, err
		}
		found, err := cf.runCases(file, load)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("read test cases: no file in %q has any: %w", name, errdefs.ErrNotFound)
	}
	return results, nil
}

// hasCases reports whether a file holds test cases, also where it is not valid YAML.
func hasCases(data []byte) bool {
	docs, err := manifest.DecodeYAML(data)
	if err != nil || len(docs) == 0 {
		return err != nil
	}
	var keys map[string]json.RawMessage
	return json.Unmarshal(docs[0], &keys) != nil || keys["cases"] != nil
}

// parseCases reads a file of cases; messages name the file.
func parseCases(file string, data []byte) (*caseFile, error) {
	root, fault := jsontree.Parse(string(data))
	if fault != nil {
		root, fault = schema.ParseYAML(string(data))
	}
	var cf caseFile
	if fault == nil && root != nil && root.Kind != jsontree.Null {
		fault = jsontree.Decoder{RefuseUnknown: true}.Decode(root, &cf)
	}
	if fault != nil {
		fault.File = file
		return nil, fault
	}
	if err := cf.check(); err != nil {
		return nil, fmt.Errorf("read test cases in %q: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	return &cf, nil
}

// check returns the first fault of the cases.
func (cf *caseFile) check() error {
	if len(cf.Cases) == 0 {
		return errors.New("cases: must have at least one")
	}
	for i := range cf.Cases {
		if fault := cf.Cases[i].findFault(); fault != "" {
			return fmt.Errorf("cases[%d] %s: %s", i, diag.Quote(cf.Cases[i].Name), fault)
		}
	}
	return nil
}

// findFault returns the fault of a case, or "".
func (c *caseSpec) findFault() string {
	// The first fault counts.
	switch {
	case c.Name == "":
		return "name: must not be empty"
	case !slices.Contains([]Outcome{Granted, Audited, Refused}, c.Want):
		return fmt.Sprintf("want: invalid value %s: must be %s, %s or %s", diag.Quote(string(c.Want)), Granted, Audited,
			Refused)
	case (c.Pod == "") == (c.For == nil):
		return "must have either pod or for"
	case c.Pod == "" && c.Ask.IsEmpty() && c.Count == nil:
		return "ask: must not be empty, unless the case has a count"
	case c.Message != "" && c.Want == Granted:
		return "message: a granted request has no message; remove the key, or set want: refused or audited"
	}
	if err := c.Ask.CheckNames(); err != nil {
		return "ask: " + err.Error()
	}
	return ""
}

// runCases runs the cases of a file.
func (cf *caseFile) runCases(file string, load func(configFile string) (*Policy, error)) ([]CaseResult, error) {
	p, err := load(besideFile(file, cf.Config))
	if err != nil {
		return nil, err
	}
	var results []CaseResult
	for i := range cf.Cases {
		c := &cf.Cases[i]
		decisions, err := c.evaluate(file, p)
		if err != nil {
			return nil, fmt.Errorf("run test case %q in %q: %w", c.Name, file, err)
		}
		var diff []string
		for i := range decisions {
			diff = append(diff, c.compare(&decisions[i])...)
		}
		results = append(results, CaseResult{File: file, Name: c.Name, Passed: len(diff) == 0, Diff: diff})
	}
	return results, nil
}

// besideFile returns a path that a file of cases names, relative to itself; "" for none.
func besideFile(file, named string) string {
	if named == "" || filepath.IsAbs(named) {
		return named
	}
	return filepath.Join(filepath.Dir(file), named)
}

// evaluate returns the decisions about all that the case asks.
func (c *caseSpec) evaluate(file string, p *Policy) ([]Decision, error) {
	query := PodQuery{Container: c.Container, More: c.Ask, Count: c.Count, PodHas: c.PodHas}
	if c.For != nil {
		return decisive(p.EvaluateSubject(*c.For, query)), nil
	}
	podFile := besideFile(file, c.Pod)
	objects, err := manifest.Read(podFile, strings.NewReader(""), "default")
	if err != nil {
		return nil, err
	}
	var all []Decision
	for _, pod := range objects.Pods {
		pod.Metadata.Namespace = cmp.Or(pod.Metadata.Namespace, "default")
		for _, container := range p.EvaluatePod(&objects, pod, query) {
			if container.Err != nil {
				all = append(all, Decision{Kind: "container", Name: container.Container, Outcome: Refused,
					Message: diag.ErrorText(container.Err)})
			}
			all = append(all, decisive(container.Decisions)...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no container of it asks for anything by name: %w", podFile, errdefs.ErrNotFound)
	}
	return all, nil
}

// decisive returns the decisions about one container that a case compares. A container that exceeds a limit gets
// nothing, so its grants do not count.
func decisive(all []Decision) []Decision {
	if !slices.ContainsFunc(all, func(d Decision) bool { return d.Kind == "limits" && d.Outcome == Refused }) {
		return all
	}
	return slices.DeleteFunc(all, func(d Decision) bool { return d.Outcome == Granted })
}

// compare returns the lines of the difference between a decision and the expected one, none where they agree.
func (c *caseSpec) compare(d *Decision) []string {
	if d.Outcome == c.Want && (c.Rule == "" || c.Rule == d.Rule) && (c.Message == "" || strings.Contains(d.Message,
		c.Message)) {
		return nil
	}
	want, got := string(c.Want), string(d.Outcome)
	if c.Rule != "" {
		want += ", rule " + c.Rule
	}
	if c.Message != "" {
		want += ": ... " + c.Message + " ..."
	}
	if d.Rule != "" {
		got += ", rule " + d.Rule
	}
	if d.Message != "" {
		got += ": " + d.Message
	}
	lines := []string{d.Kind + " " + d.Name, "- " + want}
	for line := range strings.SplitSeq(got, "\n") {
		lines = append(lines, "+ "+line)
	}
	return lines
}
