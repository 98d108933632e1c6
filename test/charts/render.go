// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const deploy = "../../deploy"

// Chart is the directory of the chart, and Base that of the kustomization.
var (
	Chart = filepath.Join(deploy, "helm/jackfield")
	Base  = filepath.Join(deploy, "kustomize/base")
)

// Helm renders the chart and decodes the objects.
func Helm(values string) ([]Object, error) {
	files, err := renderChart(values)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var objects []Object
	for _, name := range names {
		found, err := Decode([]byte(files[name]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, files[name])
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// renderChart checks the values (YAML) against the schema and renders the chart as `helm install
// jackfield --namespace jackfield-system --values` does. It returns the files by their names.
func renderChart(values string) (map[string]string, error) {
	chart, err := loader.Load(Chart)
	if err != nil {
		return nil, fmt.Errorf("load chart: %w", err)
	}
	given := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	release := common.ReleaseOptions{Name: "jackfield", Namespace: "jackfield-system", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValuesWithSchemaValidation(chart, given, release, common.DefaultCapabilities, false)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, all)
	if err != nil {
		return nil, fmt.Errorf("render chart: %w", err)
	}
	return files, nil
}

// Kustomize builds the kustomization in a directory, as `kubectl kustomize` would.
func Kustomize(dir string) ([]Object, error) {
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("build %q: %w", dir, err)
	}
	text, err := result.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("build %q: %w", dir, err)
	}
	return Decode(text)
}
