// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// CRIOKit has the paths of CRI-O's programs.
type CRIOKit struct {
	// Bin is the directory of crio.
	Bin string
	// Conmon monitors containers, and Pinns creates the namespaces of pods.
	Conmon, Pinns string
}

// crio runs CRI-O on a node, as far as possible with the defaults of CRI-O.
type crio struct {
	n      *Node
	images *Registry
	addr   net.Addr // of images
}

// newCRIO also serves a registry, whose address CRI-O reads when it starts.
func newCRIO(n *Node) (daemon, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return daemon{}, fmt.Errorf("serve images: %w", err)
	}
	c := crio{n: n, images: NewRegistry(), addr: listener.Addr()}
	server := &http.Server{Handler: c.images, ReadHeaderTimeout: Patience}
	go server.Serve(listener)
	return daemon{
		close: func() error {
			if n.opts.SystemConfig {
				return errors.Join(server.Close(), os.RemoveAll(filepath.Dir(c.configFile())))
			}
			return server.Close()
		},
		config:       c.configFile(),
		files:        c.files,
		command:      c.command,
		importImages: c.importImages,
		bundle:       func(id string) string { return c.n.path("state", "overlay-containers", id, "userdata") },
		monitorArg:   c.n.path("exits"),
	}, nil
}

func (c crio) configFile() string {
	if c.n.opts.SystemConfig {
		return "/etc/crio/crio.conf"
	}
	return c.n.path("crio.conf")
}

func (c crio) command() *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.n.kit.CRIO.Bin, "crio"), "--config", c.configFile(), "--config-dir",
		c.configFile()+".d")
	cmd.Env = []string{"PATH=" + systemPath, "TMPDIR=" + jail.TempDir, "LC_ALL=C",
		"CONTAINER_REGISTRIES_CONF=" + c.n.path("registries.conf")}
	useCgroupVersion(cmd, c.n.opts.Unified)
	return cmd
}

func (c crio) files() map[string]string {
	return map[string]string{
		c.configFile():    c.config(),
		"policy.json":     `{"default": [{"type": "insecureAcceptAnything"}]}`,
		"registries.conf": c.registries(),
		"oci-runtime":     c.wrapper(),
	}
}

// wrapper returns a script that runs the OCI runtime after it has set the OOM score of an infra container to the
// default.
func (c crio) wrapper() string {
	return fmt.Sprintf(`#!/bin/sh
for arg; do
	if [ "$option" = --bundle ]; then sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/' "$arg/config.json"; fi
	option=$arg
done
exec %s "$@"
`, c.n.ociRuntime())
}

func (c crio) ociRuntime() string {
	if c.n.opts.InfraContainers {
		return c.n.path("oci-runtime")
	}
	return c.n.ociRuntime()
}

// registries returns the configuration of registries: the node's own, and the mirror of its options.
func (c crio) registries() string {
	const entry = "[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n"
	text := fmt.Sprintf(entry, "localhost", c.addr.String())
	if mirror := c.n.opts.Mirror; mirror != "" {
		for _, host := range mirrored() {
			text += fmt.Sprintf(entry, host, mirror)
		}
	}
	return text
}

// config returns CRI-O's configuration. It sets the paths, the network and NRI, and does without systemd and a firewall,
// which a jail lacks.
func (c crio) config() string {
	n := c.n
	request, registration := n.opts.timeouts()
	text := fmt.Sprintf(`[crio]
root = %q
runroot = %q
storage_driver = "overlay"
log_dir = %q
version_file = %q
version_file_persist = %q
clean_shutdown_file = %q
[crio.api]
listen = %q
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
disable_hostport_mapping = true
container_exits_dir = %q
container_attach_socket_dir = %q
pinns_path = %q
cdi_spec_dirs = %s
default_runtime = "oci"
[crio.runtime.runtimes.oci]
runtime_path = %q
runtime_type = "oci"
runtime_root = %q
monitor_path = %q
monitor_cgroup = "pod"
[crio.image]
pause_image = %q
pause_command = ""
signature_policy = %q
[crio.network]
network_dir = %q
plugin_dirs = [%q]
[crio.nri]
enable_nri = %t
nri_listen = %q
nri_plugin_dir = %q
nri_plugin_config_dir = %q
nri_plugin_request_timeout = %q
nri_plugin_registration_timeout = %q
`, n.path("root"), n.path("state"), n.path("logs"), n.path("version"), n.path("version.persist"), n.path("clean"),
		n.Socket(), n.path("exits"), n.path("attach"), n.kit.CRIO.Pinns,
		tomlList(n.cdiDirs()), c.ociRuntime(), n.path("oci"), n.kit.CRIO.Conmon, PauseImage, n.path("policy.json"),
		n.path("cni", "conf"), n.path("cni", "bin"), !n.opts.NoNRI, n.NRISocket(), n.PluginDir(), n.PluginConfigDir(),
		request, registration)
	if v := n.opts.Validator; v != nil {
		text += fmt.Sprintf(`[crio.nri.default_validator]
nri_enable_default_validator = true
nri_validator_required_plugins = %s
nri_validator_tolerate_missing_plugins_annotation = %q
`, tomlList(v.Required), v.Tolerate)
	}
	return text
}

// importImages pulls the images from the registry.
func (c crio) importImages(ctx context.Context, archive string, refs ...string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.images.Add(f); err != nil {
		return err
	}
	for _, ref := range refs {
		image := &cri.ImageSpec{Image: ref, UserSpecifiedImage: ref}
		if _, err := c.n.images.PullImage(ctx, &cri.PullImageRequest{Image: image}); err != nil {
			return fmt.Errorf("pull image %q: %w", ref, err)
		}
	}
	return nil
}
