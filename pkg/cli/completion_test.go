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

func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := Run(t.Context(), args, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}); status != ExitOK {
		t.Fatalf("jackfield %s exits with %d: %s", strings.Join(args, " "), status, errs.String())
	}
	return out.String()
}

// The scripts are of their shell, and what they ask the program is answered.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := printed(t, "completion", shell)
		if !strings.Contains(script, "jackfield") {
			t.Errorf("%s: the script does not name the command", shell)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here: its script is not read", shell)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s cannot read its script: %v\n%s", shell, err, out)
		}
	}
	root := t.TempDir()
	socket := root + "/run/jackfield/status.sock"
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(root+"/etc/cdi", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/etc/cdi/v.json", []byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"port0","containerEdits":{"env":["A=1"]}}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version":"v1","containers":[{"namespace":"telco","pod":"fwd-0","container":"app","containerID":"77e1"}]}`)
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	// The last line, of a colon and a number, has the shell offer files or not.
	for ask, want := range map[string]string{
		"validate -o ":                             "text\njson\n:4\n",
		"enable-nri --runtime ":                    "containerd\ncri-o\n:4\n",
		"inject --root " + root + " --cdi-device ": "vendor.com/net=port0\n:4\n",
		"install jackfield-cni ":                   "jackfield\njackfield-hook\njackfield-nri\n:4\n",
		"status --root " + root + " ":              "77e1\ttelco/fwd-0/app\ntelco/fwd-0\n:4\n",
		"status --root " + root + " telco/fwd-0 ":  ":4\n",
		"completion ":                              "bash\nfish\npowershell\nzsh\n:4\n",
		"comp":                                     "completion\tWrite a completion script for bash, fish, powershell, zsh\n:4\n",
	} {
		if got := printed(t, append([]string{"__complete"}, strings.Split(ask, " ")...)...); got != want {
			t.Errorf("%q is completed by %q, want %q", ask, got, want)
		}
	}
	for ask, want := range map[string]string{"exp": "explain", "explain --po": "--pod", "deviceinfo ": "list"} {
		if got := printed(t, append([]string{"__complete"}, strings.Split(ask, " ")...)...); !strings.Contains(got, want) {
			t.Errorf("%q is completed by %q, want %q", ask, got, want)
		}
	}
}
