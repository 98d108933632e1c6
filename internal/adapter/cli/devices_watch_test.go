// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// Each change is printed as one line; an interrupt ends the command with status 0.
func TestDevicesWatchPrintsEachChange(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+".tmp", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".tmp", file); err != nil {
			t.Fatal(err)
		}
	}
	spec := func(value string) string {
		return `{"cdiVersion": "0.6.0", "kind": "vendor.com/net", "devices": [{"name": "vf0", "containerEdits": {"env": ["A=` + value + `"]}}]}`
	}
	write("etc/cdi/a.json", spec("1"))
	if err := os.MkdirAll(filepath.Join(root, "var/run/cdi"), 0o755); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, w := io.Pipe()
	status := make(chan int, 1)
	go func() {
		status <- Run(ctx, []string{"devices", "--watch", "--root", root}, Env{
			Stdin: nil, Stdout: w, Stderr: os.Stderr, Getenv: func(string) string { return "" },
		})
		w.Close()
	}()
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	want := func(text string) {
		t.Helper()
		select {
		case line := <-lines:
			if prefix, cut := strings.CutSuffix(text, "…"); line != text && !(cut && strings.HasPrefix(line, prefix)) {
				t.Fatalf("got  %q\nwant %q", line, text)
			}
		case <-time.After(testkit.Hangs):
			t.Fatalf("no line, want %q", text)
		}
	}

	want("+ device      vendor.com/net=vf0  /etc/cdi/a.json")
	write("etc/cdi/a.json", spec("2"))
	want("~ device      vendor.com/net=vf0  /etc/cdi/a.json")
	write("var/run/cdi/b.json", spec("3"))
	want("~ device      vendor.com/net=vf0  /var/run/cdi/b.json")
	write("etc/cdi/c.json", spec("4"))
	want("+ conflict    vendor.com/net=vf0  /etc/cdi/a.json, /etc/cdi/c.json")
	write("etc/cdi/c.json", "{")
	want("- conflict    vendor.com/net=vf0  /etc/cdi/a.json, /etc/cdi/c.json")
	want("+ refused     /etc/cdi/c.json:1:2: …")
	for _, name := range []string{"var/run/cdi/b.json", "etc/cdi/c.json"} {
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
		if name == "var/run/cdi/b.json" {
			want("~ device      vendor.com/net=vf0  /etc/cdi/a.json")
		}
	}
	want("- refused     /etc/cdi/c.json:1:2: …")

	if err := os.Rename(filepath.Join(root, "etc/cdi"), filepath.Join(root, "etc/cdi-away")); err != nil {
		t.Fatal(err)
	}
	want("- device      vendor.com/net=vf0  /etc/cdi/a.json")
	write("etc/cdi", "a file")
	want("+ directory   /etc/cdi  read CDI spec directory \"/etc/cdi\": not a directory")

	const dp = "var/run/k8s.cni.cncf.io/devinfo/dp/a.b-c-0000:03:00.3-device.json"
	write(dp, `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.3"}}`)
	want("+ device-info /" + dp + "  a.b/c 0000:03:00.3")
	write(dp, `{"type": "pci", "version": "1.1.0"}`)
	want("~ device-info /" + dp + ":1:10: pci: missing; …")

	stop()
	for range lines {
	}
	if got := <-status; got != ExitOK {
		t.Errorf("exit status %d, want %d", got, ExitOK)
	}
}
