// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/deploy/artifact"
)

// Media types of a chart, which Helm defines.
const (
	typeChartConfig = "application/vnd.cncf.helm.config.v1+json"
	typeChart       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

const (
	chartDir  = "deploy/helm/jackfield"
	valuesDoc = "docs/reference/helm-values.md"
)

// makeChart packages the chart with the release's version and image, as an archive and as an OCI layout.
func (r *release) makeChart(ctx context.Context) error {
	list, err := r.git(ctx, "ls-files", "-z", "--", chartDir)
	if err != nil {
		return err
	}
	var metadata map[string]any
	var files []artifact.File
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(r.Source, name))
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, chartDir+"/")
		switch name {
		case ".helmignore":
			continue
		case "Chart.yaml":
			metadata, data, err = r.chartMetadata(data)
		case "values.yaml":
			data, err = chartValues(data)
		}
		if err != nil {
			return err
		}
		files = append(files, artifact.File{Name: "jackfield/" + name, Mode: 0o644, Data: data})
	}
	readme, err := r.chartReadme()
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.Source, "LICENSE"))
	if err != nil {
		return err
	}
	files = append(files, artifact.File{Name: "jackfield/README.md", Mode: 0o644, Data: readme}, artifact.File{Name: "jackfield/LICENSE", Mode: 0o644, Data: license})
	packed, err := artifact.Compress(files, r.Time)
	if err != nil {
		return err
	}
	r.files["jackfield-chart-"+r.Version+".tgz"] = packed.Compressed
	config, err := json.Marshal(metadata)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	l := artifact.NewLayout(&out, r.Time)
	labels := r.ImageConfig().Labels
	labels["org.opencontainers.image.description"] = fmt.Sprint(metadata["description"])
	chart := l.Manifest(artifact.Manifest{Config: l.Blob(typeChartConfig, config), Layers: []artifact.Descriptor{l.Blob(typeChart, packed.Compressed)}, Annotations: labels})
	return r.makeLayout(l, &out, chart, "charts/jackfield", "jackfield-chart-"+r.Version+".oci.tar")
}

// chartMetadata completes Chart.yaml with the version and with what Artifact Hub shows.
func (r *release) chartMetadata(text []byte) (map[string]any, []byte, error) {
	var m map[string]any
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return nil, nil, fmt.Errorf("read %s/Chart.yaml: %w", chartDir, err)
	}
	annotations, ok := m["annotations"].(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("read %s/Chart.yaml: found no annotations", chartDir)
	}
	section, err := r.changes()
	if err != nil {
		return nil, nil, err
	}
	var changes []string
	for line := range strings.Lines(section) {
		if change, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			changes = append(changes, change)
		}
	}
	for name, value := range map[string]any{
		"changes": changes,
		"images":  []any{map[string]any{"name": "jackfield", "image": registry + "/jackfield:" + r.Version, "platforms": r.platforms()}},
		"links":   []any{map[string]any{"name": "Documentation", "url": home + "/blob/v" + r.Version + "/docs/index.md"}, map[string]any{"name": "Support", "url": home + "/discussions"}},
	} {
		text, err := yaml.Marshal(value)
		if err != nil {
			return nil, nil, err
		}
		annotations["artifacthub.io/"+name] = string(text)
	}
	annotations["artifacthub.io/prerelease"] = fmt.Sprint(strings.Contains(r.Version, "-"))
	m["version"], m["appVersion"] = r.Version, r.Version
	out, err := yaml.Marshal(m)
	return m, out, err
}

// platforms are the image's, OS/ARCH.
func (r *release) platforms() []string {
	var list []string
	for _, arch := range r.archs {
		list = append(list, "linux/"+arch)
	}
	return list
}

// chartValues names the published image.
func chartValues(text []byte) ([]byte, error) {
	const local = "  # The registry that the image of `make image` was pushed to, or the name under which it was\n  # imported on every node.\n  repository: localhost/jackfield/jackfield\n"
	if bytes.Count(text, []byte(local)) != 1 {
		return nil, fmt.Errorf("read %s/values.yaml: want once\n%s", chartDir, local)
	}
	return bytes.Replace(text, []byte(local), []byte("  repository: "+registry+"/jackfield\n"), 1), nil
}

// chartReadme is the chart's page: how to install it, and the list of its values.
func (r *release) chartReadme() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.Source, valuesDoc))
	if err != nil {
		return nil, err
	}
	_, values, ok := strings.Cut(string(text), "\n\n")
	if !ok || !strings.HasPrefix(string(text), "# Helm values\n") {
		return nil, fmt.Errorf("read %s: want the title \"Helm values\"", valuesDoc)
	}
	values = strings.ReplaceAll(values, "localhost/jackfield/jackfield", registry+"/jackfield")
	values = strings.ReplaceAll(values, "name of the image of `make image`", "name of the image")
	return []byte(fmt.Sprintf(`# Jackfield

Jackfield gives pods the devices and DPDK sockets that they are allowed to use: CDI devices, SR-IOV and vDPA functions,
vhost-user and memif sockets. Application pods need no privileges, no hostPath volumes and no webhook.

## Install

`+"```sh"+`
kubectl create namespace jackfield-system
kubectl label namespace jackfield-system pod-security.kubernetes.io/enforce=privileged
helm install jackfield oci://%s/charts/jackfield --version %s --namespace jackfield-system
`+"```"+`

The plugin needs nodes with NRI on, and grants nothing without rules:
see [Install on Kubernetes](%s/blob/v%s/docs/how-to/install-helm.md).

## Values

%s`, registry, r.Version, home, r.Version, r.absoluteLinks(values, filepath.Dir(valuesDoc)))), nil
}
