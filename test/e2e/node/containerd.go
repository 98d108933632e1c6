// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// containerd runs containerd on a node.
type containerd struct{ n *Node }

func (c containerd) daemon() daemon {
	return daemon{
		config:       c.n.path("config.toml"),
		files:        c.files,
		command:      c.command,
		importImages: c.importImages,
		bundle: func(id string) string {
			return c.n.path("state", "io.containerd.runtime.v2.task", "k8s.io", id)
		},
		monitorArg: c.n.Socket(),
		close:      func() error { return nil },
	}
}

func (c containerd) files() map[string]string {
	files := map[string]string{"config.toml": c.config()}
	if mirror := c.n.opts.Mirror; mirror != "" {
		for _, host := range mirrored() {
			files["certs.d/"+host+"/hosts.toml"] = fmt.Sprintf("[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n",
				"http://"+mirror)
		}
	}
	return files
}

func (c containerd) command() *exec.Cmd {
	bin := c.n.kit.Containerd[c.n.opts.Generation]
	cmd := exec.Command(filepath.Join(bin, "containerd"), "--config", c.n.path("config.toml"))
	cmd.Env = []string{"PATH=" + bin + ":" + systemPath, "TMPDIR=" + jail.TempDir, "LC_ALL=C"}
	if c.n.opts.Crun || c.n.opts.Unified {
		useCgroupVersion(cmd, c.n.opts.Unified)
	}
	return cmd
}

// importImages imports the images and waits until CRI lists them.
func (c containerd) importImages(ctx context.Context, archive string, refs ...string) error {
	if err := c.ctr(ctx, "images", "import", "--local", "--snapshotter", "native", archive); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for _, ref := range refs {
		for {
			r, err := c.n.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
			if err != nil {
				return fmt.Errorf("wait for image %q: %w", ref, err)
			}
			if r.GetImage() != nil {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
}

// ctr runs containerd's client ctr in the namespace that CRI uses.
func (c containerd) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.n.kit.Containerd[c.n.opts.Generation], "ctr"),
		append([]string{"--address", c.n.Socket(), "--namespace", "k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// config returns containerd's configuration file, in the version that containerd itself writes.
func (c containerd) config() string {
	server := fmt.Sprintf("[grpc]\n  address = %q\n", c.n.Socket())
	switch c.n.opts.Generation {
	case V1:
		return c.configCommon(2, server) + c.configV1() + c.configNRI()
	case V24:
		server = fmt.Sprintf("[plugins.\"io.containerd.server.v1.grpc\"]\n  address = %q\n"+
			"[plugins.\"io.containerd.server.v1.ttrpc\"]\n  address = %q\n", c.n.Socket(), c.n.Socket()+".ttrpc")
		return c.configCommon(4, server) + c.configV2() + c.configNRI() + c.configValidator()
	default:
		return c.configCommon(3, server) + c.configV2() + c.configNRI()
	}
}

func (c containerd) configCommon(version int, server string) string {
	return fmt.Sprintf(`version = %d
root = %q
state = %q
disabled_plugins = ["io.containerd.internal.v1.opt"]
%s[debug]
  level = "info"
`, version, c.n.path("root"), c.n.path("state"), server)
}

func (c containerd) configV1() string {
	return fmt.Sprintf(`[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  enable_cdi = %t
  cdi_spec_dirs = %s
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, PauseImage, c.n.opts.CDI, tomlList(c.n.cdiDirs()), c.n.ociRuntime(), c.n.path("cni", "bin"),
		c.n.path("cni", "conf"), c.n.path("certs.d"))
}

func (c containerd) configV2() string {
	return fmt.Sprintf(`[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = %q
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux/%s"
  snapshotter = "native"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = %t
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  enable_cdi = %t
  cdi_spec_dirs = %s
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
    conf_dir = %q
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
`, PauseImage, c.n.path("certs.d"), runtime.GOARCH, !c.n.kit.AppArmor, c.n.opts.CDI, tomlList(c.n.cdiDirs()), c.n.ociRuntime(),
		c.n.path("cni", "bin"), c.n.path("cni", "conf"))
}

func (c containerd) configNRI() string {
	request, registration := c.n.opts.timeouts()
	return fmt.Sprintf(`[plugins."io.containerd.nri.v1.nri"]
  disable = %t
  disable_connections = false
  socket_path = %q
  plugin_path = %q
  plugin_config_path = %q
  plugin_request_timeout = %q
  plugin_registration_timeout = %q
`, c.n.opts.NoNRI, c.n.NRISocket(), c.n.PluginDir(), c.n.PluginConfigDir(), request, registration)
}

func (c containerd) configValidator() string {
	v := c.n.opts.Validator
	if v == nil {
		return ""
	}
	return fmt.Sprintf(`  [plugins."io.containerd.nri.v1.nri".default_validator]
    enable = true
    required_plugins = %s
    tolerate_missing_plugins_annotation = %q
`, tomlList(v.Required), v.Tolerate)
}
