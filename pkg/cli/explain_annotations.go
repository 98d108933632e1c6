// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/manifest"
	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/config"
)

// A runtime shows an adapter one container at a time and only annotations that exist. A manifest
// shows more: these checks find requests that no adapter would ever see.

// missingContainer is a container that an annotation names and the pod does not have.
type missingContainer struct {
	name    string // NAMESPACE/POD/CONTAINER
	problem string
}

// missingContainers returns the containers that annotations name and the pod does not have.
func missingContainers(cfg *config.Config, p *manifest.Pod) []missingContainer {
	names := p.ContainerNames()
	var out []missingContainer
	for _, key := range slices.Sorted(maps.Keys(p.Metadata.Annotations)) {
		name := annotation.ContainerOf(key)
		if name == "" || slices.Contains(names, name) || isIgnoredInjectorKey(key, cfg) {
			continue
		}
		problem := fmt.Sprintf("annotation %s: no container %s in this pod; containers: %s%s", plain(key), diag.Quote(name), strings.Join(names, ", "), diag.Suggest(name, names...))
		out = append(out, missingContainer{p.Metadata.Namespace + "/" + p.Metadata.Name + "/" + name, problem})
	}
	return out
}

// printWarnings prints warnings about annotations that look like requests and are ignored, and returns them.
func printWarnings(env Env, cfg *config.Config, p *manifest.Pod) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(p.Metadata.Annotations)) {
		switch near := annotation.MisspeltKey(key); {
		case near != "":
			out = append(out, fmt.Sprintf("annotation %s is not one of Jackfield's and is ignored; did you mean %s?", diag.Quote(key), near))
		case key+"/" == annotation.CDIPrefix:
			out = append(out, fmt.Sprintf("annotation %s has no name and is ignored; want %sNAME", diag.Quote(key), annotation.CDIPrefix))
		case isIgnoredInjectorKey(key, cfg):
			out = append(out, fmt.Sprintf("annotation %s is one of device-injector's and is ignored: compat.deviceInjector is off in the configuration", diag.Quote(key)))
		}
	}
	if annotation.HasAny(p.WorkloadAnnotations) {
		out = append(out, "the workload itself has annotations of Jackfield or CDI, which its pods do not get; put them below spec.template.metadata.annotations")
	}
	for _, w := range out {
		env.message("warning: %s: %s", p.Title(), w)
	}
	return out
}

func isIgnoredInjectorKey(key string, cfg *config.Config) bool {
	return !cfg.Compat.DeviceInjector && annotation.HasInjector(map[string]string{key: ""})
}
