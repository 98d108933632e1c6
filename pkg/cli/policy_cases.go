// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

const policyTestLong = `test runs the cases in the YAML files of a directory (or in one file) against
the policy, and tells of each that comes out otherwise than it wants. It is for
the checks of a repository that holds a node's configuration.

A file holds cases, and may name the configuration they are about, relative to
itself; otherwise it is that of --config. The page jackfield.yaml(5) has the format.

The exit status is 1 when a case fails, and 3 when there is none.`

// caseFile is one file of cases.
type caseFile struct {
	Config string     `json:"config"`
	Cases  []caseSpec `json:"cases"`
}

// caseSpec is one case: what a container asks for, and what is to come of each
// of it.
type caseSpec struct {
	Name string `json:"name"`
	// Pod is a manifest, relative to the file, instead of For; what its
	// annotations name is asked for beside Ask.
	Pod       string     `json:"pod"`
	Container string     `json:"container"` // only this one of Pod
	For       *caseFor   `json:"for"`
	Ask       asks       `json:"ask"`
	Count     *caseUsage `json:"count"`   // how much the container gets
	PodHas    caseUsage  `json:"podHas"`  // and its pod's other containers have
	Want      string     `json:"want"`    // granted, audited or refused
	Rule      string     `json:"rule"`    // that grants or denies it, or comes closest
	Message   string     `json:"message"` // is in the refusal
}

type caseFor struct {
	Namespace    string            `json:"namespace"`
	Pod          string            `json:"pod"`
	Container    string            `json:"container"`
	Labels       map[string]string `json:"labels"`
	RuntimeClass string            `json:"runtimeClass"`
	Image        string            `json:"image"`
	Network      string            `json:"network"`
}

type caseUsage struct {
	CDI     int `json:"cdi"`
	Devices int `json:"devices"`
	Sockets int `json:"sockets"`
	Mounts  int `json:"mounts"`
	Hooks   int `json:"hooks"`
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
		n   node
		out output
	)
	cmd := &cobra.Command{
		Use:     "test DIR|FILE",
		Short:   "Run a directory of test cases against the policy",
		Long:    policyTestLong,
		Example: "  jackfield policy test --config config.yaml policy-tests",
		Args:    oneArg("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			t := caseRunner{n: &n, cmd: cmd, configs: make(map[string]*caseConfig), results: []caseResult{}}
			if err := t.path(args[0]); err != nil {
				return err
			}
			return t.print(env, out)
		},
	}
	n.flags(cmd)
	out.flag(cmd)
	return cmd
}

type caseConfig struct {
	cfg    *config.Config
	policy *policy.Policy
}

type caseRunner struct {
	n       *node
	cmd     *cobra.Command
	configs map[string]*caseConfig // by the file's path, "" for the one of the flags
	results []caseResult
}

func (t *caseRunner) path(arg string) error {
	st, err := os.Stat(arg)
	if err != nil {
		return fmt.Errorf("read test cases: %w", err)
	}
	if !st.IsDir() {
		return t.file(arg)
	}
	entries, err := os.ReadDir(arg)
	if err != nil {
		return fmt.Errorf("read test cases: %w", err)
	}
	for _, e := range entries { // sorted
		if ext := filepath.Ext(e.Name()); e.IsDir() || e.Name()[0] == '.' || ext != ".yaml" && ext != ".yml" {
			continue
		}
		file := filepath.Join(arg, e.Name())
		if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() {
			return fmt.Errorf("read test cases in %q: it is no regular file: %w", file, errdefs.ErrInvalidArgument)
		}
		data, err := readManifest(file, nil)
		if err != nil {
			return fmt.Errorf("read test cases in %q: %w", file, err)
		}
		// Manifests and configurations may lie beside the cases.
		var keys map[string]any
		if yaml.Unmarshal(data, &keys) == nil && keys["cases"] == nil {
			continue
		}
		if err := t.file(file); err != nil {
			return err
		}
	}
	if len(t.results) == 0 {
		return fmt.Errorf("read test cases: no file in %q has any: %w", arg, errdefs.ErrNotFound)
	}
	return nil
}

func (t *caseRunner) file(file string) error {
	data, err := readManifest(file, nil)
	if err != nil {
		return fmt.Errorf("read test cases in %q: %w", file, err)
	}
	cf, err := parseCases(file, data)
	if err != nil {
		return err
	}
	cc, err := t.config(file, cf.Config)
	if err != nil {
		return err
	}
	for i := range cf.Cases {
		c := &cf.Cases[i]
		diff, err := c.run(file, cc)
		if err != nil {
			return fmt.Errorf("run test case %q in %q: %w", c.Name, file, err)
		}
		t.results = append(t.results, caseResult{File: file, Name: c.Name, Passed: len(diff) == 0, Diff: diff})
	}
	return nil
}

// parseCases reads a file of cases; file is its name, for messages.
func parseCases(file string, data []byte) (*caseFile, error) {
	var cf caseFile
	if err := yaml.UnmarshalStrict(data, &cf); err != nil {
		return nil, fmt.Errorf("read test cases in %q: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	if len(cf.Cases) == 0 {
		return nil, fmt.Errorf("read test cases in %q: cases: want at least one: %w", file, errdefs.ErrInvalidArgument)
	}
	for i := range cf.Cases {
		if broken := cf.Cases[i].broken(); broken != "" {
			return nil, fmt.Errorf("read test cases in %q: cases[%d] %s: %s: %w", file, i, quoted(cf.Cases[i].Name), broken, errdefs.ErrInvalidArgument)
		}
	}
	return &cf, nil
}

// config is the configuration that a file of cases is about.
func (t *caseRunner) config(file, named string) (*caseConfig, error) {
	key := named
	if named != "" && !filepath.IsAbs(named) {
		key = filepath.Join(filepath.Dir(file), named)
	}
	if have := t.configs[key]; have != nil {
		return have, nil
	}
	n := *t.n
	if key != "" {
		n.configFile = key
	}
	_, cfg, err := n.load(t.cmd)
	if err != nil {
		return nil, err
	}
	p, err := resolve.Policy(cfg)
	if err != nil {
		return nil, err
	}
	t.configs[key] = &caseConfig{cfg, p}
	return t.configs[key], nil
}

// broken says what is wrong with a case, or "".
func (c *caseSpec) broken() string {
	switch {
	case c.Name == "":
		return "name: want one"
	case !slices.Contains([]string{granted, audited, refused}, c.Want):
		return fmt.Sprintf("want: found %s, want %s, %s or %s", quoted(c.Want), granted, audited, refused)
	case (c.Pod == "") == (c.For == nil):
		return "want one of pod and for"
	case c.Pod == "" && c.Ask.empty() && c.Count == nil:
		return "ask: want something to ask about, or a count"
	case c.Message != "" && c.Want == granted:
		return "message: there is none where something is granted"
	}
	return ""
}

// run gives the lines of a failure, none for a case that passed.
func (c *caseSpec) run(file string, cc *caseConfig) ([]string, error) {
	var all []decision
	if c.For != nil {
		f := c.For
		all = c.decide(cc.policy, policy.Subject{Namespace: f.Namespace, Pod: f.Pod, Container: f.Container, Labels: f.Labels,
			RuntimeHandler: f.RuntimeClass, Image: f.Image, Network: f.Network}, c.Ask)
	} else {
		manifest := c.Pod
		if !filepath.IsAbs(manifest) {
			manifest = filepath.Join(filepath.Dir(file), manifest)
		}
		requests, err := caseRequests(manifest)
		if err != nil {
			return nil, err
		}
		for _, r := range requests {
			if c.Container != "" && c.Container != r.Container {
				continue
			}
			wants, err := podAsks(cc.cfg, r)
			if err != nil {
				return nil, err
			}
			all = append(all, wants.put(cc.policy, resolve.Subject(r))...)
			all = append(all, c.decide(cc.policy, resolve.Subject(r), c.Ask)...)
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: no container of it asks for anything by name: %w", manifest, errdefs.ErrNotFound)
		}
	}
	var diff []string
	for i := range all {
		diff = append(diff, c.compare(&all[i])...)
	}
	return diff, nil
}

// caseRequests are the containers of all pods in a manifest.
func caseRequests(manifest string) ([]*resolve.Request, error) {
	pods, err := readPods(manifest, strings.NewReader(""))
	if err != nil {
		return nil, err
	}
	var all []*resolve.Request
	for _, p := range pods {
		p.Metadata.Namespace = cmp.Or(p.Metadata.Namespace, "default")
		all = append(all, p.requests("")...)
	}
	return all, nil
}

func (c *caseSpec) decide(p *policy.Policy, s policy.Subject, a asks) []decision {
	all := a.put(p, s)
	if c.Count != nil {
		all = append(all, limited(p, s, policy.Usage(*c.Count), policy.Usage(c.PodHas)))
	}
	return all
}

// compare gives the lines that tell a decision from what the case wants.
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

func (t *caseRunner) print(env Env, out output) error {
	failed := 0
	var b strings.Builder
	for i := range t.results {
		r := &t.results[i]
		if r.Passed {
			continue
		}
		failed++
		b.WriteString("FAIL " + plain(r.File) + ": " + plain(r.Name) + "\n")
		for _, line := range r.Diff {
			b.WriteString("  " + plain(line) + "\n")
		}
	}
	fmt.Fprintf(&b, "%d of %d passed\n", len(t.results)-failed, len(t.results))
	err := out.write(env.Stdout, t.results, func(w io.Writer) error {
		_, err := io.WriteString(w, b.String())
		return err
	})
	return answer(err, failed == 0)
}
