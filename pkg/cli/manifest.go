// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/manifest"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
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

// manifestFlags name the files that a command reads pods from, and the namespace of pods that name
// none.
type manifestFlags struct {
	files     []string // -f, --pod and the arguments
	pods      []string // --pod
	namespace string
	// networks are the ports that networks in the files ask for, by namespace/name.
	networks map[string][]policy.Port
	// claims are the resource claims and their templates in the files, by kind and namespace/name.
	claims map[string]manifest.Claim
}

// addFlags adds the flags that name manifests. Commands with them take file arguments as well.
func (m *manifestFlags) addFlags(cmd *cobra.Command) {
	const use = "`file` with pods or workloads, a directory of such files, or - for standard input; may be repeated"
	cmd.Flags().StringArrayVarP(&m.files, "filename", "f", nil, use)
	cmd.Flags().StringArrayVar(&m.pods, "pod", nil, "the same as -f")
}

// checkFlags adds the file arguments. It refuses an empty name, and standard input named twice.
func (m *manifestFlags) checkFlags(cmd *cobra.Command, args []string) error {
	m.files = slices.Concat(m.files, m.pods, args)
	if slices.Contains(m.files, "") {
		return usagef(cmd, "a manifest's file name is empty")
	}
	if first := slices.Index(m.files, "-"); first >= 0 && slices.Contains(m.files[first+1:], "-") {
		return usagef(cmd, "standard input (-) is named more than once")
	}
	return nil
}

// readPods returns the pods of all files. Notes about them go to standard error.
func (m *manifestFlags) readPods(cmd *cobra.Command, env Env) ([]*manifest.Pod, error) {
	m.networks, m.claims = map[string][]policy.Port{}, map[string]manifest.Claim{}
	var all []*manifest.Pod
	for _, name := range m.files {
		files, err := manifest.FilesIn(name)
		if err != nil {
			return nil, fmt.Errorf("read manifests in %q: %w", name, err)
		}
		isEmpty := true
		for _, file := range files {
			objects, err := manifest.Read(file, env.Stdin)
			hasOthers := len(objects.Networks)+len(objects.Claims) > 0
			var none manifest.NoPodsError
			if err != nil && (!errors.As(err, &none) || !hasOthers && file == name) {
				return nil, err
			}
			if err != nil && !hasOthers {
				env.message("note: %s holds no pod", file)
				continue
			}
			isEmpty = false
			m.addOthers(&objects)
			for _, p := range objects.Pods {
				if err := m.setNamespace(cmd, env, file, p); err != nil {
					return nil, err
				}
				if len(m.files) > 1 || file != name {
					p.File = file
				}
			}
			all = append(all, objects.Pods...)
		}
		if isEmpty {
			return nil, fmt.Errorf("read manifests in %q: no %s file in the directory holds a pod: %w", name, strings.Join(manifest.Suffixes, ", "), errdefs.ErrNotFound)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read manifests in %s: they hold networks or resource claims, but no pod: %w", strings.Join(m.files, ", "), errdefs.ErrInvalidArgument)
	}
	return all, nil
}

// addOthers adds the networks and claims of a file. Those that name no namespace are in the one of the flag.
func (m *manifestFlags) addOthers(o *manifest.Objects) {
	for _, n := range o.Networks {
		m.networks[cmp.Or(n.Namespace, m.namespace, "default")+"/"+n.Name] = n.Ports
	}
	for _, c := range o.Claims {
		m.claims[c.Kind+" "+cmp.Or(c.Namespace, m.namespace, "default")+"/"+c.Name] = c
	}
}

// portRequest is a port that a network of a pod asks for.
type portRequest struct {
	network string // namespace/name
	port    policy.Port
}

// portsOf returns the ports of a pod's networks, as far as the files hold the networks.
func (m *manifestFlags) portsOf(r *resolve.Request, cfg *config.Config) []portRequest {
	networks, err := attachment.NamedNetworks(r.Annotations[attachment.NetworksAnnotation], r.Namespace)
	if err != nil {
		return nil // the engine reports it
	}
	var all []portRequest
	for _, network := range networks {
		for _, port := range m.networks[network] {
			v, _ := cfg.Vswitch(port.Switch)
			port.Bridge = cmp.Or(port.Bridge, v.Defaults.Bridge)
			all = append(all, portRequest{network, port})
		}
	}
	return all
}

// setNamespace sets the flag's namespace on a pod that names none.
func (m *manifestFlags) setNamespace(cmd *cobra.Command, env Env, file string, p *manifest.Pod) error {
	switch {
	case m.namespace == "" && p.Metadata.Namespace == "":
		env.message(`note: %s names no namespace: "default" is assumed (-n says another)`, p.Title())
		p.Metadata.Namespace = "default"
	case p.Metadata.Namespace == "":
		p.Metadata.Namespace = m.namespace
	case m.namespace != "" && m.namespace != p.Metadata.Namespace:
		return usagef(cmd, "--namespace: found %q, but %s in %q names the namespace %q", m.namespace, p.Title(), file, p.Metadata.Namespace)
	}
	return nil
}
