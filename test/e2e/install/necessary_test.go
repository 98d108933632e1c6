// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// features are the features for which docs/reference/host-paths-and-capabilities.md says each capability is
// needed. Each runs a pod of its own, and returns an error if it does not work.
func features() map[int]func(ctx context.Context, h *e2e.H, name string) error {
	return map[int]func(ctx context.Context, h *e2e.H, name string) error{
		unix.CAP_SYS_ADMIN: mounted, unix.CAP_CHOWN: ownDirectory, unix.CAP_FOWNER: othersSocket, unix.CAP_DAC_OVERRIDE: othersDirectory,
	}
}

func capName(c int) string {
	return map[int]string{unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN", unix.CAP_CHOWN: "CAP_CHOWN", unix.CAP_FOWNER: "CAP_FOWNER", unix.CAP_DAC_OVERRIDE: "CAP_DAC_OVERRIDE"}[c]
}

// Every documented capability is needed for its documented feature and for no other. All of them are
// sufficient. The plugin is root, and its bounding set has only these.
func TestEachCapabilityIsNecessary(t *testing.T) {
	e2e.EachFreshDaemon(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		bin, err := h.Kit().Command("jackfield-nri")
		if err != nil {
			t.Fatal(err)
		}
		h.MkdirAll("/run/vsw/others")
		for _, err := range []error{os.Chown("/run/vsw/others", 200, 200), os.Chmod("/run/vsw/others", 0o755)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		all := documented(t)
		for without := range features() {
			if all&(1<<without) == 0 {
				t.Errorf("docs/reference/host-paths-and-capabilities.md has no %s", capName(without))
			}
		}
		for without := -1; without < 64; without++ {
			keep := all
			if without >= 0 {
				if keep &^= 1 << without; keep == all {
					continue
				}
			}
			p := h.StartPlugin(node.PluginOptions{Config: strings.Replace(nodeConfig, "sockets: {", `sockets: {user: "1000", `, 1), Binary: self, Args: []string{"--least-privilege"},
				Env: []string{fmt.Sprintf("%s=%x", keepEnv, keep), execEnv + "=" + bin}})
			checkCapabilities(t, p.PID(), keep)
			for c, try := range features() {
				err := try(t.Context(), h, fmt.Sprintf("without%d-for%d", without+1, c))
				needed := c == without || c == unix.CAP_DAC_OVERRIDE && without == unix.CAP_CHOWN // the directory belongs to the user
				switch {
				case needed && err == nil:
					t.Errorf("without %s all works that it is said to be for", capName(c))
				case !needed && err != nil:
					t.Errorf("without %s, what %s is for does not work: %v", capName(without), capName(c), err)
				case err != nil:
					t.Logf("without %s: %v", capName(without), err)
				}
			}
			if err := p.Stop(node.Patience); err != nil {
				t.Errorf("without %s the plugin ends with %v", capName(without), err)
			}
		}
	})
}

// mounted checks that sockets are bound in the state directory by mounts.
func mounted(context.Context, *e2e.H, string) error {
	data, err := os.ReadFile("/run/jackfield/staging.json")
	if err == nil && !strings.Contains(string(data), `"mode":"mount"`) {
		err = errors.New(string(data))
	}
	return err
}

// ownDirectory runs an application that is not root and creates its socket.
func ownDirectory(ctx context.Context, h *e2e.H, name string) error {
	return runSocketPod(ctx, h, name, "server", "/var/run/vsw/own-"+name+"/app.sock", 1000)
}

// othersSocket runs a container that is not root and has a socket of another user.
func othersSocket(ctx context.Context, h *e2e.H, name string) error {
	path := "/run/vsw/port-" + name + "/vhost.sock"
	h.Vswitch(vswitch.VhostUser, path, name)
	if err := os.Chown(path, 200, 200); err != nil {
		return err
	}
	return runSocketPod(ctx, h, name, "client", "/var"+path, 1000)
}

// othersDirectory creates and removes a directory in a directory of another user.
func othersDirectory(ctx context.Context, h *e2e.H, name string) error {
	return runSocketPod(ctx, h, name, "server", "/var/run/vsw/others/"+name+"/app.sock", 1000)
}

// runSocketPod runs a pod with a socket, and removes it. Runtimes before NRI 0.11 do not report the container's user,
// so the configuration names the user.
func runSocketPod(ctx context.Context, h *e2e.H, name, mode, path string, user int64) error {
	pod := h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
	defer pod.Remove()
	devinfo(h, pod, "red", "net1", mode, path)
	c, err := pod.Pod.Create(ctx, node.ContainerOptions{User: user, Group: user})
	if err != nil {
		return err
	}
	return c.Start(ctx)
}
