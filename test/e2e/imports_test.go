// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// hasNRI reports whether containerd has NRI enabled and accepts connections of plugins, with a configuration
// file and its imports, according to `containerd config dump`. read is false if containerd refuses them.
func hasNRI(t *testing.T, containerd, file string) (on, read bool) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), containerd, "--config", file, "config", "dump").Output()
	if err != nil {
		return false, false
	}
	text := string(out)
	if regexp.MustCompile(`(?m)^disabled_plugins = .*io\.containerd\.nri\.v1\.nri`).MatchString(text) {
		return false, true
	}
	_, table, found := strings.Cut(text, "io.containerd.nri.v1.nri")
	disable := regexp.MustCompile(`(?m)^\s*disable = (\w+)$`).FindStringSubmatch(table)
	if !found || disable == nil {
		t.Fatalf("%s has no NRI section:\n%s", containerd, text)
	}
	connections := regexp.MustCompile(`(?m)^\s*disable_connections = (\w+)$`).FindStringSubmatch(table)
	return disable[1] == "false" && (connections == nil || connections[1] == "false"), true
}

// The doctor and `enable-nri` read drop-ins like the containerd that reads them. 2.4.2 merges the table of a
// plugin key by key, and 1.7 replaces it.
func TestImportsAreReadLikeContainerd(t *testing.T) {
	e2e.Require(t)
	kit, err := node.KitFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	const table = "[plugins.\"io.containerd.nri.v1.nri\"]\n"
	versions := []string{"", "version = 2\n", "version = 2\n", "version = 3\n", "version = 3\n", "version = 4\n"}
	lists := []string{"", "", "", "disabled_plugins = []\n", "disabled_plugins = [\"io.containerd.internal.v1.opt\"]\n", "disabled_plugins = [\n 'io.containerd.nri.v1.nri', # x\n]\n"}
	tables := []string{"", "", table + "disable = true\n", table + "disable = false\n", table + "socket_path = \"/x\"\n", table + "disable_connections = true\n",
		"[plugins]\n'io.containerd.nri.v1.nri' = { socket_path = '/x', disable = true }\n", "[debug]\nlevel = 'info'\n"}
	// Most imported files do not mention NRI.
	imported := append(make([]string, 16), tables...)
	imports := []string{"", "imports = ['conf.d/*.toml', 'z.toml']\n", "imports = ['z.toml', './conf.d/../conf.d/*.toml']\n", "imports = ['*/*.toml', 'z.toml']\n"}
	deeper := []string{"", "", "imports = ['../config.toml', '../late/*']\n"}
	random := rand.New(rand.NewPCG(24, 2))
	one := func(of []string) string { return of[random.IntN(len(of))] }
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := cli.Run(t.Context(), args, cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
		return code, out.String()
	}
	counts := map[string]int{}
	for i := range 60 {
		root := t.TempDir()
		files := map[string]string{
			"config.toml": one(versions[1:]) + one(imports[1:]) + one(lists) + one(tables), "z.toml": one(versions[:5]) + one(imported),
			"conf.d/a.toml": one(versions[:5]) + one(deeper) + one(lists[:5]) + one(imported), "conf.d/b.toml": one(versions[:5]) + one(lists) + one(imported),
			"late/c.toml": one(imported),
		}
		dir := filepath.Join(root, "etc/containerd")
		for name, text := range files {
			name = filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		main := filepath.Join(dir, "config.toml")
		// 1.7 also reads files of later versions if the last one is of version 2, but no
		// administrator configures that.
		newer := regexp.MustCompile(`version = [34]`).MatchString(fmt.Sprint(files))
		all := func() (on bool, says string) {
			on = true
			for _, g := range node.Containerds() {
				if g == node.V1 && newer {
					continue
				}
				if has, read := hasNRI(t, filepath.Join(kit.Containerd[g], "containerd"), main); read {
					on = on && has
					says += fmt.Sprintf(" %s: %v", kit.Versions[g], has)
				}
			}
			return on, says
		}
		newest, read := hasNRI(t, filepath.Join(kit.Containerd[node.V24], "containerd"), main)
		if !read {
			t.Fatalf("%d: containerd %s refuses %q", i, kit.Versions[node.V24], files)
		}
		_, diagnosis := run("doctor", "--root", root)
		if said := !regexp.MustCompile(`(?m)^ERROR +runtime .*(turns NRI off|lets no plugin connect)`).MatchString(diagnosis); said != newest {
			t.Errorf("%d: containerd %s has NRI on: %v, and the doctor reports for %q\n%s", i, kit.Versions[node.V24], newest, files, diagnosis)
		}
		on, says := all()
		code, text := run("enable-nri", "--root", root, "--runtime", "containerd")
		for name, was := range files {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != was {
				t.Errorf("%d: enable-nri changed %s to %q, %v", i, name, got, err)
			}
		}
		kind := "by hand"
		switch nothing := strings.Contains(text, "nothing to do"); {
		case nothing != on:
			t.Errorf("%d: NRI is on:%s; enable-nri prints for %q\n%s", i, says, files, text)
		case nothing:
			kind = "on"
		case strings.Contains(text, ": written:"):
			kind = "written"
		}
		counts[kind]++
		if kind == "by hand" && (code != cli.ExitNo || !editByHand(t, root, text)) {
			t.Errorf("%d: %d, and nothing to change: %s", i, code, text)
		}
		_, read = hasNRI(t, filepath.Join(kit.Containerd[node.V24], "containerd"), main)
		if on, says := all(); !on || !read {
			t.Errorf("%d: after enable-nri NRI is on:%s; it printed for %q\n%s", i, says, files, text)
		}
	}
	t.Log(counts)
	for _, what := range []string{"on", "written", "by hand"} {
		if counts[what] < 3 {
			t.Errorf("%d cases of 60 are %s: the test needs cases of every kind", counts[what], what)
		}
	}
}
