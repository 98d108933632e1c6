// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runCommand runs jackfield and returns its standard output.
func runCommand(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := Run(t.Context(), args, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}); status != ExitOK {
		t.Fatalf("jackfield %s exits with %d: %s", strings.Join(args, " "), status, errs.String())
	}
	return out.String()
}

// serveStatus answers for jackfield-nri below a root until the test ends, or until the returned function is called.
func serveStatus(t *testing.T, root string, answer func() string) (stop func()) {
	t.Helper()
	socket := root + "/run/jackfield/status.sock"
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer()) })}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return func() { server.Close() }
}

// Each shell can parse its script, and the program answers the script's requests.
func TestShellsAcceptCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := runCommand(t, "completion", shell)
		if !strings.Contains(script, "jackfield") {
			t.Errorf("%s: the script does not name the command", shell)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s on this machine: its script is not parsed", shell)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s cannot parse its script: %v\n%s", shell, err, out)
		}
	}
	root := t.TempDir()
	serveStatus(t, root, func() string {
		return `{"version":"v1","containers":[{"namespace":"telco","pod":"fwd-0","container":"app","containerID":"77e1","sandbox":"e061"}],"sandboxes":[{"id":"e061"},{"id":"f172"}]}`
	})
	if err := os.MkdirAll(root+"/etc/cdi", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/etc/cdi/v.json", []byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"port0","containerEdits":{"env":["A=1"]}}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	config := root + "/config.yaml"
	if err := os.WriteFile(config, []byte("sockets: {roots: [/run/x], named: {spire: {path: /run/x/a.sock}, admin: {path: /run/x/b.sock}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// The last line, a colon and a number, says whether the shell offers files.
	for ask, want := range map[string]string{
		"validate -o ":                                         "text\njson\nyaml\n:4\n",
		"enable-nri --runtime ":                                "containerd\ncri-o\n:4\n",
		"inject --root " + root + " --cdi-device ":             "vendor.com/net=port0\n:4\n",
		"copy-programs jackfield-cni ":                         "jackfield\njackfield-hook\njackfield-netavark\njackfield-nri\njackfield-run\nkubectl-jackfield\n:4\n",
		"status --root " + root + " ":                          "77e1\ttelco/fwd-0/app\ntelco/fwd-0\n:4\n",
		"status --root " + root + " telco/fwd-0 ":              ":4\n",
		"sockets --root " + root + " -o ":                      "text\njson\nyaml\nwide\n:4\n",
		"sockets --color ":                                     "auto\nalways\nnever\n:4\n",
		"explain --root " + root + " --sandbox-id ":            "e061\ttelco/fwd-0\nf172\n:4\n",
		"explain --root " + root + " --container-id ":          "77e1\ttelco/fwd-0/app\n:4\n",
		"policy check --config " + config + " --named-socket ": "admin\nspire\n:4\n",
		"policy check --root " + root + " --cdi ":              "vendor.com/net=port0\n:4\n",
		"completion ": "bash\tGenerate the autocompletion script for bash\nfish\tGenerate the autocompletion script for fish\n" +
			"powershell\tGenerate the autocompletion script for powershell\nzsh\tGenerate the autocompletion script for zsh\n:4\n",
		"comp": "completion\tGenerate the autocompletion script for the specified shell\n:4\n",
	} {
		if got := runCommand(t, append([]string{"__complete"}, strings.Split(ask, " ")...)...); got != want {
			t.Errorf("%q is completed by %q, want %q", ask, got, want)
		}
	}
	for ask, want := range map[string]string{"exp": "explain", "explain --sand": "--sandbox-id", "deviceinfo ": "list"} {
		if got := runCommand(t, append([]string{"__complete"}, strings.Split(ask, " ")...)...); !strings.Contains(got, want) {
			t.Errorf("%q is completed by %q, want %q", ask, got, want)
		}
	}
}
