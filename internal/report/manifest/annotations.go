// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/source/annotation"
)

// A runtime shows an adapter one container at a time and only annotations that exist. A manifest
// shows more: these checks find requests that no adapter would ever see.

// MissingContainer is a container that an annotation names and the pod does not have.
type MissingContainer struct {
	Name    string // NAMESPACE/POD/CONTAINER
	Problem string
}

// MissingContainers returns the containers that annotations name and the pod does not have.
func (p *Pod) MissingContainers(cfg *config.Config) []MissingContainer {
	names := p.ContainerNames()
	var out []MissingContainer
	for _, key := range slices.Sorted(maps.Keys(p.Metadata.Annotations)) {
		name := annotation.ContainerOf(key)
		if name == "" || slices.Contains(names, name) || isIgnoredInjectorKey(key, cfg) {
			continue
		}
		problem := fmt.Sprintf("annotation %s: no container %s in this pod; containers: %s%s", diag.Plain(key),
			diag.Quote(name), strings.Join(names, ", "), diag.Suggest(name, names...))
		out = append(out, MissingContainer{p.Metadata.Namespace + "/" + p.Metadata.Name + "/" + name, problem})
	}
	return out
}

// Warnings returns warnings about annotations that look like requests and are ignored.
func (p *Pod) Warnings(cfg *config.Config) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(p.Metadata.Annotations)) {
		switch near := annotation.MisspeltKey(key); {
		case near != "":
			out = append(out, fmt.Sprintf("annotation %s is not one of Jackfield's and is ignored; did you mean %s?",
				diag.Quote(key), near))
		case key+"/" == annotation.CDIPrefix:
			out = append(out, fmt.Sprintf("annotation %s has no name and is ignored: must be %sNAME", diag.Quote(key),
				annotation.CDIPrefix))
		case isIgnoredInjectorKey(key, cfg):
			out = append(out, fmt.Sprintf("annotation %s is one of device-injector's and is ignored: compat.deviceInjector is "+
				"off in the configuration", diag.Quote(key)))
		}
	}
	if annotation.HasAny(p.WorkloadAnnotations) {
		out = append(out, "the workload itself has annotations of Jackfield or CDI, which its pods do not get; put them "+
			"below spec.template.metadata.annotations")
	}
	return out
}

func isIgnoredInjectorKey(key string, cfg *config.Config) bool {
	return !cfg.Compat.DeviceInjector && annotation.HasInjector(map[string]string{key: ""})
}
