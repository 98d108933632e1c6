// SPDX-License-Identifier: Apache-2.0

// Package deploy tests that what is shipped as an example works as it stands.
package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/cli"
	"github.com/jackfield/jackfield/pkg/config"
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

func TestConfigurations(t *testing.T) {
	for _, path := range []string{"deploy/config.yaml", "deploy/install/config.yaml", "nri/50-jackfield.conf"} {
		if _, err := config.Parse(read(t, path), path); err != nil {
			t.Error(err)
		}
	}
}

// The sample pod gets its device under the sample configuration.
func TestSamplePod(t *testing.T) {
	var pod struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := yaml.Unmarshal(read(t, "deploy/samples/pod.yaml"), &pod); err != nil {
		t.Fatal(err)
	}
	if wants, err := annotation.Parse(pod.Metadata.Annotations, "router"); err != nil || len(wants.Devices) != 1 {
		t.Fatalf("the annotations ask for %+v, %v", wants, err)
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
	status := cli.Run(t.Context(), []string{"explain", "--pod", filepath.Join(top, "deploy/samples/pod.yaml"), "--config", filepath.Join(top, "deploy/config.yaml"), "--root", host},
		cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	// Its network can be checked only once it is scheduled.
	if status != cli.ExitError || !bytes.Contains(out.Bytes(), []byte("PORT=0")) || !bytes.Contains(out.Bytes(), []byte(`network "dpdk-blue/vhost-net": not checked`)) {
		t.Errorf("explain exits with %d:\n%s%s", status, out.String(), errs.String())
	}
}
