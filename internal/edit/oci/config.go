// SPDX-License-Identifier: Apache-2.0

package oci

import (
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/edit"
)

// Config is an OCI config.json. Only the values that edits change or depend on are decoded. All
// others only need to be JSON.
type Config struct {
	text string
	root *jsontree.Node
	spec rspec.Spec

	env     []element[string]
	gids    []element[uint32]
	rlimits []element[rspec.POSIXRlimit]
	mounts  []element[rspec.Mount]
	hooks   map[edit.Stage][]element[rspec.Hook]
	devices []element[rspec.LinuxDevice]
	rules   []element[rspec.LinuxDeviceCgroup]
}

// element is one element of a list: its value, and its text in config.json. A new element has no
// text.
type element[T any] struct {
	value T
	text  string
}

// content is the part of a config.json that is decoded.
type content struct {
	Version     string            `json:"ociVersion"`
	Root        *rspec.Root       `json:"root"`
	Annotations map[string]string `json:"annotations"`
	Process     *struct {
		User struct {
			UID            uint32   `json:"uid"`
			GID            uint32   `json:"gid"`
			AdditionalGids []uint32 `json:"additionalGids"`
		} `json:"user"`
		Env     []string            `json:"env"`
		Rlimits []rspec.POSIXRlimit `json:"rlimits"`
	} `json:"process"`
	Mounts []rspec.Mount `json:"mounts"`
	Hooks  *rspec.Hooks  `json:"hooks"`
	Linux  *struct {
		UIDMappings       []rspec.LinuxIDMapping `json:"uidMappings"`
		GIDMappings       []rspec.LinuxIDMapping `json:"gidMappings"`
		CgroupsPath       string                 `json:"cgroupsPath"`
		Namespaces        []rspec.LinuxNamespace `json:"namespaces"`
		Devices           []rspec.LinuxDevice    `json:"devices"`
		RootfsPropagation string                 `json:"rootfsPropagation"`
		Resources         *struct {
			Devices []rspec.LinuxDeviceCgroup `json:"devices"`
		} `json:"resources"`
		NetDevices map[string]rspec.LinuxNetDevice `json:"netDevices"`
		IntelRdt   *jsontree.Node                  `json:"intelRdt"` // is replaced
	} `json:"linux"`
}

// ParseConfig parses a config.json: a JSON object with an ociVersion. file names it in the error,
// which is a *diag.Diagnostic. Keys in another case than the specification's are refused, because
// runtimes written in Go take them for the specification's.
func ParseConfig(file string, data []byte) (*Config, error) {
	c := &Config{text: string(data)}
	var read content
	var fault *diag.Diagnostic
	if c.root, fault = jsontree.Parse(c.text); fault == nil {
		fault = jsontree.Decoder{RefuseOtherCase: true}.Decode(c.root, &read)
	}
	if fault == nil && read.Version == "" {
		at := c.root.At("ociVersion")
		fault = &diag.Diagnostic{Line: at.Line, Column: at.Column, Field: "ociVersion", Rule: "a version is required"}
	}
	if fault != nil {
		fault.File = file
		return nil, fault
	}
	c.setContent(&read)
	return c, nil
}

// setContent sets the decoded part of the configuration, and the elements of its lists.
func (c *Config) setContent(read *content) {
	c.spec = rspec.Spec{Version: read.Version, Root: read.Root, Annotations: read.Annotations, Mounts: read.Mounts,
		Hooks: read.Hooks}
	c.mounts = elementsOf(c, read.Mounts, "mounts")
	if p := read.Process; p != nil {
		c.spec.Process = &rspec.Process{Env: p.Env, Rlimits: p.Rlimits,
			User: rspec.User{UID: p.User.UID, GID: p.User.GID, AdditionalGids: p.User.AdditionalGids}}
		c.env = elementsOf(c, p.Env, "process", "env")
		c.gids = elementsOf(c, p.User.AdditionalGids, "process", "user", "additionalGids")
		c.rlimits = elementsOf(c, p.Rlimits, "process", "rlimits")
	}
	if read.Hooks != nil {
		c.hooks = make(map[edit.Stage][]element[rspec.Hook])
		for _, s := range edit.Stages() {
			c.hooks[s] = elementsOf(c, *hooksOfStage(read.Hooks, s), "hooks", string(s))
		}
	}
	if l := read.Linux; l != nil {
		c.spec.Linux = &rspec.Linux{UIDMappings: l.UIDMappings, GIDMappings: l.GIDMappings, CgroupsPath: l.CgroupsPath,
			Namespaces: l.Namespaces,
			Devices:    l.Devices, RootfsPropagation: l.RootfsPropagation, NetDevices: l.NetDevices}
		c.devices = elementsOf(c, l.Devices, "linux", "devices")
		if l.Resources != nil {
			c.spec.Linux.Resources = &rspec.LinuxResources{Devices: l.Resources.Devices}
			c.rules = elementsOf(c, l.Resources.Devices, "linux", "resources", "devices")
		}
	}
}

// elementsOf returns the elements of the list at a path, with their texts.
func elementsOf[T any](c *Config, values []T, path ...any) []element[T] {
	var list []element[T]
	for i, value := range values {
		n := c.root.At(append(path, i)...)
		list = append(list, element[T]{value, c.text[n.Start:n.End]})
	}
	return list
}

// Spec returns the decoded part of the configuration: ociVersion, root.path, annotations, the user,
// environment and resource limits of the process, mounts, hooks, and of linux the namespaces, ID mappings, devices,
// network devices, device cgroup rules, cgroupsPath and rootfsPropagation. It must not be changed.
func (c *Config) Spec() *rspec.Spec { return &c.spec }

// Existing returns the state of a container with this configuration, for the resolution of edits that
// are to be applied to it.
func Existing(spec *rspec.Spec) edit.Existing {
	have := edit.Existing{CDIReplaces: true}
	if spec.Process != nil {
		have.Env = spec.Process.Env
		for _, r := range spec.Process.Rlimits {
			if r.Type == edit.RlimitMemlock {
				have.Memlock = &edit.Rlimit{Soft: quantity.Memory(r.Soft), Hard: quantity.Memory(r.Hard)}
			}
		}
	}
	for _, m := range spec.Mounts {
		have.Mounts = append(have.Mounts, edit.Mount{Destination: m.Destination, Source: m.Source})
	}
	if spec.Linux != nil {
		for _, d := range spec.Linux.Devices {
			have.Devices = append(have.Devices, edit.Device{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor,
				FileMode: d.FileMode, UID: d.UID, GID: d.GID})
		}
	}
	if spec.Hooks != nil {
		for _, stage := range edit.Stages() {
			for _, h := range *hooksOfStage(spec.Hooks, stage) {
				have.Hooks = append(have.Hooks, edit.Hook{Stage: stage, Path: h.Path, Args: h.Args, Env: h.Env,
					Timeout: h.Timeout})
			}
		}
	}
	return have
}

// hooksOfStage returns the list of one stage, nil for an unknown stage.
func hooksOfStage(h *rspec.Hooks, stage edit.Stage) *[]rspec.Hook {
	return map[edit.Stage]*[]rspec.Hook{
		//lint:ignore SA1019 CDI names the stage, and runtimes run it.
		edit.Prestart:        &h.Prestart,
		edit.CreateRuntime:   &h.CreateRuntime,
		edit.CreateContainer: &h.CreateContainer,
		edit.StartContainer:  &h.StartContainer,
		edit.Poststart:       &h.Poststart,
		edit.Poststop:        &h.Poststop,
	}[stage]
}
