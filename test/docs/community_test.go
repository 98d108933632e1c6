// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"go/version"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// readYAML decodes a file of the checkout. A field that T lacks is an error.
func readYAML[T any](t *testing.T, path string) T {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// workflow has the fields of a GitHub workflow that this project uses.
type workflow struct {
	Name        string
	On          any
	Permissions map[string]string
	Env         map[string]string
	Jobs        map[string]struct {
		If          string
		RunsOn      string `yaml:"runs-on"`
		Container   map[string]string
		Permissions map[string]string
		Steps       []struct {
			Name, Uses, Run string
			With, Env       map[string]string
		}
	}
}

// The workflows run targets of the Makefile, may only read unless a job says otherwise, and name other
// people's actions by commit.
func TestWorkflowsRunMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "\n.PHONY: ")
	list, _, _ = strings.Cut(list, "\n")
	targets := strings.Fields(list)
	files, err := filepath.Glob(filepath.Join(top, ".github/workflows/*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("found the workflows %q: %v", files, err)
	}
	ran := map[string]bool{}
	for _, file := range files {
		w := readYAML[workflow](t, file)
		if d := cmp.Diff(map[string]string{"contents": "read"}, w.Permissions); d != "" {
			t.Errorf("%s: permissions (-want, +got):\n%s", file, d)
		}
		for name, job := range w.Jobs {
			if !strings.HasPrefix(job.RunsOn, "ubuntu-") || len(job.Steps) == 0 {
				t.Errorf("%s: job %s runs %d steps on %q", file, name, len(job.Steps), job.RunsOn)
			}
			for _, s := range job.Steps {
				if s.Uses != "" && !regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`).MatchString(s.Uses) {
					t.Errorf("%s: job %s uses %s, want a commit", file, name, s.Uses)
				}
				if strings.Contains(s.Run, "${{") {
					t.Errorf("%s: job %s: an expression becomes shell code: %s", file, name, s.Run)
				}
				args, ok := strings.CutPrefix(s.Run, "make ")
				if !ok {
					continue
				}
				for target := range strings.FieldsSeq(args) {
					if strings.Contains(target, "=") {
						continue
					}
					ran[target] = true
					if !slices.Contains(targets, target) {
						t.Errorf("%s: job %s runs make %s, which does not exist", file, name, target)
					}
				}
			}
		}
	}
	for _, target := range []string{"lint", "unit", "e2e", "kube", "fuzz", "vulncheck"} {
		if !ran[target] {
			t.Errorf("no workflow runs make %s", target)
		}
	}
}

// actionlint finds nothing in the workflows: it checks keys, events, runners, permissions and expressions. It does not
// check the inputs of actions that are named by commit.
func TestWorkflowsPassActionlint(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, ".github/workflows/*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("found the workflows %q: %v", files, err)
	}
	lint := func(files ...string) (string, error) {
		// Programs that a machine may have do not change the result.
		args := []string{"tool", "-modfile=../tools/go.mod", "actionlint", "-no-color", "-shellcheck=", "-pyflakes="}
		out, err := exec.CommandContext(t.Context(), "go", append(args, files...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := lint(files...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	broken := filepath.Join(t.TempDir(), "broken.yml")
	const text = "on: push\njobs:\n  test:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: echo ${{ github.nothing }}\n"
	if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := lint(broken); err == nil || !strings.Contains(out, `property "nothing" is not defined`) {
		t.Errorf("actionlint accepts an unknown property: %v\n%s", err, out)
	}
}

// The workflows install a Go that every module of the checkout accepts: setup-go keeps Go from fetching a newer one.
func TestWorkflowsInstallGoForEachModule(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, ".github/workflows/*.yml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("found the workflows %q: %v", files, err)
	}
	minors := map[string]bool{}
	for _, module := range goModules(t) {
		text, err := os.ReadFile(filepath.Join(top, module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^go (\d+\.\d+)(\.\d+)?$`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s/go.mod names no version of Go", module)
		}
		minors[string(found[1])] = true
	}
	newest := slices.MaxFunc(slices.Collect(maps.Keys(minors)), func(a, b string) int { return version.Compare("go"+a, "go"+b) })
	// The newest patch release, which has the fixes of the standard library and satisfies each go.mod.
	want := map[string]string{"go-version": newest + ".x", "check-latest": "true"}
	steps := 0
	for _, file := range files {
		for name, job := range readYAML[workflow](t, file).Jobs {
			for _, s := range job.Steps {
				if !strings.HasPrefix(s.Uses, "actions/setup-go@") {
					continue
				}
				steps++
				if d := cmp.Diff(want, s.With); d != "" {
					t.Errorf("%s: job %s installs Go with (-want, +got):\n%s", file, name, d)
				}
			}
		}
	}
	if steps == 0 {
		t.Error("no workflow installs Go")
	}
}

// issueForm has the fields of a GitHub issue form that this project uses.
type issueForm struct {
	Name, Description string
	Labels            []string
	Body              []struct {
		Type, ID   string
		Attributes struct {
			Label, Description, Value, Render string
			Options                           []any
		}
		Validations map[string]bool
	}
}

func TestIssueFormsAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, ".github/ISSUE_TEMPLATE/*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("found the forms %q: %v", files, err)
	}
	// Contributors and search engines know these names, and GitHub creates these labels in each repository.
	for name, label := range map[string]string{"bug_report": "bug", "feature_request": "enhancement"} {
		form := readYAML[issueForm](t, filepath.Join(top, ".github/ISSUE_TEMPLATE", name+".yml"))
		if !slices.Equal(form.Labels, []string{label}) {
			t.Errorf("%s.yml has the labels %q, want %q", name, form.Labels, label)
		}
	}
	for _, file := range files {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		form := readYAML[issueForm](t, file)
		if form.Name == "" || form.Description == "" {
			t.Errorf("%s: has no name or description", file)
		}
		ids := map[string]bool{}
		for _, element := range form.Body {
			valid := false
			switch element.Type {
			case "markdown":
				valid = element.Attributes.Value != "" && element.ID == ""
			case "textarea", "input":
				valid = element.Attributes.Label != "" && len(element.Attributes.Options) == 0
			case "dropdown", "checkboxes":
				valid = element.Attributes.Label != "" && len(element.Attributes.Options) > 0
			}
			if !valid || element.ID != "" && ids[element.ID] {
				t.Errorf("%s: the element %+v is invalid, or its id is there twice", file, element)
			}
			ids[element.ID] = true
		}
	}
}

// goModules returns the directories of the checkout's modules, such as "/test", sorted.
func goModules(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", top, "ls-files", "--cached", "--others", "--exclude-standard", "go.mod", "*/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for file := range strings.FieldsSeq(string(out)) {
		modules = append(modules, filepath.Join("/", filepath.Dir(file)))
	}
	slices.Sort(modules)
	return modules
}

// Each module of the checkout gets updates of its dependencies.
func TestDependabotKnowsModules(t *testing.T) {
	type ecosystem struct {
		PackageEcosystem string `yaml:"package-ecosystem"`
		Directory        string
		Directories      []string
		Schedule         map[string]string
		Groups           map[string]map[string][]string
	}
	config := readYAML[struct {
		Version int
		Updates []ecosystem
	}](t, filepath.Join(top, ".github/dependabot.yml"))
	modules := goModules(t)
	for _, e := range config.Updates {
		if e.PackageEcosystem == "gomod" {
			if d := cmp.Diff(modules, e.Directories); d != "" {
				t.Errorf("the modules (-), dependabot's (+):\n%s", d)
			}
			return
		}
	}
	t.Error("dependabot does not know Go")
}

// `make signed-off` finds commits whose author did not sign them off.
func TestCommitsWithoutSignOffAreFound(t *testing.T) {
	dir := t.TempDir()
	makefile, err := filepath.Abs(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Bob", "GIT_COMMITTER_EMAIL=bob@example.com"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	commit := func(message string) {
		t.Helper()
		if out, err := run("git", "commit", "--allow-empty", "--quiet", "--message", message); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if out, err := run("git", "init", "--quiet"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	commit("a: before")
	commit("b: signed\n\nSigned-off-by: Cyd <cyd@example.com>\nSigned-off-by: Ann <ann@example.com>")
	if out, err := run("make", "-f", makefile, "signed-off", "SINCE=HEAD~1"); err != nil {
		t.Errorf("a commit with a sign-off: %v\n%s", err, out)
	}
	for _, message := range []string{"c: nothing", "c: other\n\nSigned-off-by: Bob <bob@example.com>", "c: text\n\nSigned-off-by: Ann <ann@example.com>\n\nends it"} {
		commit(message)
		out, err := run("make", "-f", makefile, "signed-off", "SINCE=HEAD~1")
		if err == nil || !strings.Contains(out, "not signed off by Ann <ann@example.com>") || strings.Contains(out, "b: signed") {
			t.Errorf("%q: %v\n%s", message, err, out)
		}
	}
}
