// SPDX-License-Identifier: Apache-2.0

// Package deploy tests that the shipped examples work unchanged.
package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/source/annotation"
)

const top = "../.."

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestShippedConfigurationsAreValid(t *testing.T) {
	for _, path := range []string{"deploy/config.yaml", "deploy/install/config.yaml", "nri/50-jackfield.conf"} {
		if _, err := config.Parse(read(t, path), path); err != nil {
			t.Error(err)
		}
	}
}

// The sample configuration grants the device of the sample pod.
func TestSamplePodIsGrantedBySampleConfiguration(t *testing.T) {
	var pod struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := yaml.Unmarshal(read(t, "deploy/samples/pod.yaml"), &pod); err != nil {
		t.Fatal(err)
	}
	if wants, err := annotation.Parse(pod.Metadata.Annotations, "router"); err != nil || len(wants.Devices) != 1 {
		t.Fatalf("the annotations request %+v, %v", wants, err)
	}
	host := t.TempDir()
	if err := os.MkdirAll(filepath.Join(host, "etc/cdi"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"port0","containerEdits":{"env":["PORT=0"]}}]}`
	if err := os.WriteFile(filepath.Join(host, "etc/cdi/v.json"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	status := cli.Run(t.Context(), []string{"explain", filepath.Join(top, "deploy/samples/pod.yaml"), "--config", filepath.Join(top, "deploy/config.yaml"), "--root", host},
		cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	// The network can be checked only after the pod is scheduled.
	if status != cli.ExitError || !bytes.Contains(out.Bytes(), []byte("PORT=0")) || !bytes.Contains(out.Bytes(), []byte(`network "dpdk-blue/vhost-net": not checked`)) {
		t.Errorf("explain has the exit status %d:\n%s%s", status, out.String(), errs.String())
	}
}

// The configuration in the comment of the sample grants its port.
func TestSamplePortIsGrantedByTheRuleInItsComment(t *testing.T) {
	var comment bytes.Buffer
	for line := range bytes.Lines(read(t, "deploy/samples/port.yaml")) {
		if text, ok := bytes.CutPrefix(line, []byte("#   ")); ok {
			comment.Write(text)
		}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, comment.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	status := cli.Run(t.Context(), []string{"policy", "check", filepath.Join(top, "deploy/samples/port.yaml"), "--config", file},
		cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	if status != 0 || !bytes.Contains(out.Bytes(), []byte("ports ovs0/br-dpdk0:100: granted by rule dpdk-ports")) {
		t.Errorf("policy check has the exit status %d:\n%s%s", status, out.String(), errs.String())
	}
}
