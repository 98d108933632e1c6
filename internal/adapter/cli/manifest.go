// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/report/manifest"
)

// place is where a command found a container.
type place struct {
	File     string `json:"file,omitempty"`     // of the manifest, where several are read
	Workload string `json:"workload,omitempty"` // whose pod template it is, KIND NAMESPACE/NAME; "" for a Pod
}

func placeOf(p *manifest.Pod) place { return place{File: p.File, Workload: p.Workload()} }

// heading returns a line for the file and one for the workload, where they differ from the previous
// container's.
func (p place) heading(previous place) string {
	var b strings.Builder
	if p.File != "" && p.File != previous.File {
		b.WriteString("File " + plain(p.File) + "\n")
	}
	if p.Workload != "" && p.Workload != previous.Workload {
		b.WriteString(plain(p.Workload) + "\n")
	}
	return b.String()
}

// manifestFlags name the files that a command reads pods from, the namespace of pods that name
// none, and a container of the pods.
type manifestFlags struct {
	files     []string // the arguments
	namespace string
	container string // only this one; "" for all

	manifest.Objects     // of the files
	unread           int // files of several that cannot be read
}

// checkFlags sets the files. It rejects an empty name, and standard input named twice.
func (m *manifestFlags) checkFlags(cmd *cobra.Command, args []string) error {
	m.files = args
	if slices.Contains(m.files, "") {
		return usagef(cmd, "a manifest's file name is empty")
	}
	if first := slices.Index(m.files, "-"); first >= 0 && slices.Contains(m.files[first+1:], "-") {
		return usagef(cmd, "standard input (-) is named more than once")
	}
	return nil
}

// readPods reads all files, and checks that a pod has the container. Notes about pods go to standard error. Of several
// files, one that cannot be read is reported there and counted, and the others are read.
func (m *manifestFlags) readPods(cmd *cobra.Command, env Env) error {
	for _, name := range m.files {
		files, err := manifest.FilesIn(name)
		if err != nil {
			return fmt.Errorf("read manifests in %q: %w", name, err)
		}
		isEmpty := true
		for _, file := range files {
			objects, err := manifest.Read(file, env.Stdin, cmp.Or(m.namespace, "default"))
			hasOthers := objects.Definitions+len(objects.Claims) > 0
			var none manifest.NoPodsError
			isSeveral := len(m.files) > 1 || file != name
			switch isFault := err != nil && !errors.As(err, &none); {
			case isFault && isSeveral:
				env.message("%v", err)
				m.unread++
				continue
			case isFault || err != nil && !hasOthers && file == name:
				return err
			}
			if err != nil && !hasOthers {
				env.message("note: %s holds no pod", file)
				continue
			}
			isEmpty = false
			for _, name := range slices.Sorted(maps.Keys(objects.Networks)) {
				if err := objects.Networks[name].Err; err != nil {
					env.message("warning: %s: %v", file, err)
				}
			}
			for _, p := range objects.Pods {
				if err := m.setNamespace(cmd, env, file, p); err != nil {
					return err
				}
				if isSeveral {
					p.File = file
				}
			}
			m.Add(objects)
		}
		if isEmpty && m.unread == 0 {
			return fmt.Errorf("read manifests in %q: no %s file in the directory holds a pod: %w", name,
				strings.Join(manifest.Suffixes, ", "), errdefs.ErrNotFound)
		}
	}
	if len(m.Pods) == 0 && m.unread > 0 {
		return errNoAnswer
	}
	if len(m.Pods) == 0 {
		return fmt.Errorf("read manifests in %s: they hold networks or resource claims, but no pod: %w",
			strings.Join(m.files, ", "), errdefs.ErrInvalidArgument)
	}
	return m.CheckContainer(m.container)
}

// printWarnings prints warnings about a pod's annotations and returns them.
func printWarnings(env Env, cfg *config.Config, p *manifest.Pod) []string {
	warnings := p.Warnings(cfg)
	for _, w := range warnings {
		env.message("warning: %s: %s", p.Title(), w)
	}
	return warnings
}

// setNamespace sets the flag's namespace on a pod that names none.
func (m *manifestFlags) setNamespace(cmd *cobra.Command, env Env, file string, p *manifest.Pod) error {
	switch {
	case m.namespace == "" && p.Metadata.Namespace == "":
		env.message(`note: %s names no namespace: "default" is assumed (-n sets another)`, p.Title())
		p.Metadata.Namespace = "default"
	case p.Metadata.Namespace == "":
		p.Metadata.Namespace = m.namespace
	case m.namespace != "" && m.namespace != p.Metadata.Namespace:
		return usagef(cmd, "--namespace: invalid value %q: %s in %q names the namespace %q", m.namespace, p.Title(), file,
			p.Metadata.Namespace)
	}
	return nil
}
