// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/manifest"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

const policyTestLong = `test runs the cases in the YAML files of a directory (or in one file) against
the policy, and prints each case with another outcome than it expects. It is for
the checks of a repository that holds a node's configuration.

A file holds cases, and may name the configuration they are about, relative to
itself; otherwise --config names it. The page jackfield.yaml(5) has the format.

The exit status is 1 when a case fails, and 3 when there is none.`

// caseFile is one file of test cases.
type caseFile struct {
	Config string     `json:"config"`
	Cases  []caseSpec `json:"cases"`
}

// caseSpec is one case: what a container asks for, and the outcome that is expected.
type caseSpec struct {
	Name string `json:"name"`
	// Pod is a manifest, relative to the file. It replaces For; what its annotations name is added
	// to Ask.
	Pod       string          `json:"pod"`
	Container string          `json:"container"` // only this one of Pod
	For       *policy.Subject `json:"for"`
	Ask       query           `json:"ask"`
	Count     *policy.Usage   `json:"count"`   // how much the container gets
	PodHas    policy.Usage    `json:"podHas"`  // and its pod's other containers have
	Want      string          `json:"want"`    // granted, audited or refused
	Rule      string          `json:"rule"`    // that grants or denies it, or comes closest
	Message   string          `json:"message"` // is in the refusal
}

// caseResult is one case that was run.
type caseResult struct {
	File   string   `json:"file"`
	Name   string   `json:"name"`
	Passed bool     `json:"passed"`
	Diff   []string `json:"diff,omitempty"` // lines: what was wanted, what came
}

func policyTestCommand(env Env) *cobra.Command {
	var (
		n   hostFlags
		out output
	)
	cmd := &cobra.Command{
		Use:     "test DIR|FILE",
		Short:   "Run a directory of test cases against the policy",
		Long:    policyTestLong,
		Example: "  jackfield policy test --config config.yaml policy-tests",
		Args:    exactlyOneArg("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := n.runCases(cmd, args[0])
			if err != nil {
				return err
			}
			return printResults(env, out, results)
		},
	}
	n.addFlags(cmd)
	out.addFlag(cmd)
	return cmd
}

// runCases runs the test cases in a file, or in the files of a directory.
func (n *hostFlags) runCases(cmd *cobra.Command, arg string) ([]caseResult, error) {
	var results []caseResult
	files, err := manifest.FilesIn(arg)
	if err != nil {
		return nil, fmt.Errorf("read test cases in %q: %w", arg, err)
	}
	for _, file := range files {
		if file != arg && (filepath.Base(file)[0] == '.' || filepath.Ext(file) == ".json") {
			continue
		}
		data, err := manifest.ReadInput(file, cmd.InOrStdin())
		if err != nil {
			return nil, fmt.Errorf("read test cases in %q: %w", file, err)
		}
		// Manifests and configurations may lie beside the cases.
		if file != arg && !hasCases(data) {
			continue
		}
		found, err := n.runFile(cmd, file, data)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("read test cases: no file in %q has any: %w", arg, errdefs.ErrNotFound)
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

func (n *hostFlags) runFile(cmd *cobra.Command, file string, data []byte) ([]caseResult, error) {
	cf, err := parseCases(file, data)
	if err != nil {
		return nil, err
	}
	flags := *n
	if cf.Config != "" {
		flags.configFile = besideFile(file, cf.Config)
	}
	p, err := flags.loadPolicy(cmd)
	if err != nil {
		return nil, err
	}
	var results []caseResult
	for i := range cf.Cases {
		c := &cf.Cases[i]
		diff, err := c.runCase(file, p)
		if err != nil {
			return nil, fmt.Errorf("run test case %q in %q: %w", c.Name, file, err)
		}
		results = append(results, caseResult{File: file, Name: c.Name, Passed: len(diff) == 0, Diff: diff})
	}
	return results, nil
}

// parseCases reads a file of cases; messages name the file.
func parseCases(file string, data []byte) (*caseFile, error) {
	var cf caseFile
	docs, err := manifest.DecodeYAML(data)
	if err == nil && len(docs) > 1 {
		err = errors.New("want one YAML document")
	}
	if err == nil && len(docs) == 1 {
		dec := json.NewDecoder(bytes.NewReader(docs[0]))
		dec.DisallowUnknownFields()
		err = dec.Decode(&cf)
	}
	if err != nil {
		return nil, fmt.Errorf("read test cases in %q: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	if len(cf.Cases) == 0 {
		return nil, fmt.Errorf("read test cases in %q: cases: want at least one: %w", file, errdefs.ErrInvalidArgument)
	}
	for i := range cf.Cases {
		if broken := cf.Cases[i].findFault(); broken != "" {
			return nil, fmt.Errorf("read test cases in %q: cases[%d] %s: %s: %w", file, i, diag.Quote(cf.Cases[i].Name), broken, errdefs.ErrInvalidArgument)
		}
	}
	return &cf, nil
}

// besideFile returns a path that a file of cases names, relative to itself.
func besideFile(file, named string) string {
	if filepath.IsAbs(named) {
		return named
	}
	return filepath.Join(filepath.Dir(file), named)
}

// findFault says what is wrong with a case, or "".
func (c *caseSpec) findFault() string {
	switch {
	case c.Name == "":
		return "name: want one"
	case !slices.Contains([]string{granted, audited, refused}, c.Want):
		return fmt.Sprintf("want: found %s, want %s, %s or %s", diag.Quote(c.Want), granted, audited, refused)
	case (c.Pod == "") == (c.For == nil):
		return "want one of pod and for"
	case c.Pod == "" && c.Ask.isEmpty() && c.Count == nil:
		return "ask: want something to ask about, or a count"
	case c.Message != "" && c.Want == granted:
		return "message: there is none where something is granted"
	}
	return ""
}

// runCase returns the lines of a failure, none for a case that passes.
func (c *caseSpec) runCase(file string, p nodePolicy) ([]string, error) {
	var all []decision
	if c.For != nil {
		all = c.evaluate(p, *c.For, c.Ask)
	} else {
		podFile := besideFile(file, c.Pod)
		requests, err := caseRequests(podFile, c.Container)
		if err != nil {
			return nil, err
		}
		for _, r := range requests {
			wants, err := annotationQuery(p.cfg, r)
			if err != nil {
				return nil, err
			}
			all = append(all, wants.evaluate(p, resolve.Subject(r))...)
			all = append(all, c.evaluate(p, resolve.Subject(r), c.Ask)...)
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: no container of it asks for anything by name: %w", podFile, errdefs.ErrNotFound)
		}
	}
	var diff []string
	for i := range all {
		diff = append(diff, c.compare(&all[i])...)
	}
	return diff, nil
}

// caseRequests returns the containers of all pods in a manifest, or those with a name.
func caseRequests(file, name string) ([]*resolve.Request, error) {
	objects, err := manifest.Read(file, strings.NewReader(""))
	if err != nil {
		return nil, err
	}
	var all []*resolve.Request
	for _, p := range objects.Pods {
		p.Metadata.Namespace = cmp.Or(p.Metadata.Namespace, "default")
		all = append(all, p.Requests("", name)...)
	}
	return all, nil
}

func (c *caseSpec) evaluate(p nodePolicy, s policy.Subject, a query) []decision {
	all := a.evaluate(p, s)
	if c.Count != nil {
		all = append(all, decideLimits(p, s, *c.Count, c.PodHas))
	}
	return all
}

// compare returns the lines of the difference between a decision and the expected one.
func (c *caseSpec) compare(d *decision) []string {
	if d.Outcome == c.Want && (c.Rule == "" || c.Rule == d.Rule) && (c.Message == "" || strings.Contains(d.Message, c.Message)) {
		return nil
	}
	want, got := c.Want, d.Outcome
	if c.Rule != "" {
		want += ", rule " + c.Rule
	}
	if d.Rule != "" {
		got += ", rule " + d.Rule
	}
	lines := []string{d.Kind + " " + d.Name, "- " + want, "+ " + got}
	if c.Message != "" {
		lines[1] += ": ... " + c.Message + " ..."
	}
	if d.Message != "" {
		for i, line := range strings.Split(d.Message, "\n") {
			if i == 0 {
				lines[2] += ": " + line
			} else {
				lines = append(lines, "+ "+line)
			}
		}
	}
	return lines
}

func printResults(env Env, out output, results []caseResult) error {
	failed := 0
	var b strings.Builder
	for i := range results {
		r := &results[i]
		if r.Passed {
			continue
		}
		failed++
		b.WriteString("FAIL " + plain(r.File) + ": " + plain(r.Name) + "\n")
		for _, line := range r.Diff {
			b.WriteString("  " + plain(line) + "\n")
		}
	}
	fmt.Fprintf(&b, "%d of %d passed\n", len(results)-failed, len(results))
	return answerError(out.writeResult(env, results, b.String), failed == 0)
}
