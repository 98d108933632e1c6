// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"os"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// daemonSet has the fields of apps/v1 that are needed to run the pod. test/charts checks that the files have
// no other fields of consequence.
type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				Containers []container
				Volumes    []volume
			}
		}
	}
}

type container struct {
	Name, Image     string
	Command, Args   []string
	SecurityContext struct {
		Privileged             bool
		ReadOnlyRootFilesystem bool
		Capabilities           *struct{ Add, Drop []string }
	}
	VolumeMounts                  []mount
	ReadinessProbe, LivenessProbe struct{ Exec struct{ Command []string } }
}

type mount struct {
	Name, MountPath, MountPropagation string
	ReadOnly                          bool
}

type volume struct {
	Name      string
	ConfigMap *struct{ Name string }
	HostPath  *hostPath
}

type hostPath struct{ Path, Type string }

// addRoot adds a socket root, as the chart does for each root of the configuration.
func (d *daemonSet) addRoot(dir string) {
	pod := &d.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, volume{Name: "root", HostPath: &hostPath{dir, "DirectoryOrCreate"}})
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, mount{Name: "root", MountPath: dir, MountPropagation: "HostToContainer"})
}

// read reads the DaemonSet of the kustomization's base.
func read(checkout string) (*daemonSet, error) {
	return decode(filepath.Join(checkout, "deploy/kustomize/base/daemonset.yaml"))
}

// readUnprivileged reads the DaemonSet with the patch of the component "unprivileged".
func readUnprivileged(checkout string) (*daemonSet, error) {
	ds, err := read(checkout)
	if err != nil {
		return nil, err
	}
	patch, err := decode(filepath.Join(checkout, "deploy/kustomize/components/unprivileged/daemonset.yaml"))
	if err != nil {
		return nil, err
	}
	c, p := &ds.Spec.Template.Spec.Containers[0], patch.Spec.Template.Spec.Containers[0]
	c.SecurityContext.Privileged = p.SecurityContext.Privileged
	c.SecurityContext.Capabilities = p.SecurityContext.Capabilities
	for i := range c.VolumeMounts {
		for _, m := range p.VolumeMounts {
			if m.MountPath == c.VolumeMounts[i].MountPath {
				c.VolumeMounts[i].MountPropagation = m.MountPropagation
			}
		}
	}
	return ds, nil
}

func decode(file string) (*daemonSet, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	ds := new(daemonSet)
	if err := yaml.Unmarshal(data, ds); err != nil {
		return nil, fmt.Errorf("read %q: %w", file, err)
	}
	if len(ds.Spec.Template.Spec.Containers) != 1 {
		return nil, fmt.Errorf("read %q: found %d containers, want 1", file, len(ds.Spec.Template.Spec.Containers))
	}
	return ds, nil
}

// options returns the container options that a kubelet derives from the DaemonSet's container. configDir has
// the ConfigMap's files. moved maps paths of the host to other paths.
func (d *daemonSet) options(configDir string, moved map[string]string) (node.ContainerOptions, error) {
	c := d.Spec.Template.Spec.Containers[0]
	o := node.ContainerOptions{
		Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args,
		Privileged: c.SecurityContext.Privileged, ReadonlyRootfs: c.SecurityContext.ReadOnlyRootFilesystem,
	}
	if caps := c.SecurityContext.Capabilities; caps != nil {
		o.Capabilities = &cri.Capability{AddCapabilities: caps.Add, DropCapabilities: caps.Drop}
	}
	for _, m := range c.VolumeMounts {
		src, err := d.source(m.Name, configDir, moved)
		if err != nil {
			return o, err
		}
		o.Mounts = append(o.Mounts, &cri.Mount{HostPath: src, ContainerPath: m.MountPath, Readonly: m.ReadOnly,
			Propagation: map[string]cri.MountPropagation{
				"HostToContainer": cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
				"Bidirectional":   cri.MountPropagation_PROPAGATION_BIDIRECTIONAL,
			}[m.MountPropagation]})
	}
	return o, nil
}

// source returns a volume's directory on the host, and creates it if a kubelet would.
func (d *daemonSet) source(name, configDir string, moved map[string]string) (string, error) {
	for _, v := range d.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != name:
		case v.ConfigMap != nil:
			return configDir, nil
		case v.HostPath != nil:
			dir := v.HostPath.Path
			if to, ok := moved[dir]; ok {
				dir = to
			}
			if v.HostPath.Type == "DirectoryOrCreate" {
				return dir, os.MkdirAll(dir, 0o755)
			}
			return dir, nil
		}
	}
	return "", fmt.Errorf("mount of volume %q: there is no such volume of a host path or ConfigMap", name)
}
