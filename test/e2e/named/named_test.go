// SPDX-License-Identifier: Apache-2.0

package named_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/ovs"
)

const (
	spirePath = "/run/spire/agent.sock"
	blockPath = "/run/storage/blk.sock"
)

// newConfig returns the configuration with the three servers' sockets.
func newConfig(database string) string {
	return fmt.Sprintf(`
sockets:
  user: "1000:1000"
  named:
    spire:  {path: %s, at: /run/spire/agent.sock, create: wait}
    ovs-db: {path: %s, at: /srv/ovs/db.sock}
    disk:   {path: %s}
policy:
  rules:
    - name: workloads
      for: {namespaces: [apps]}
      allow: {namedSockets: [spire, disk], sockets: [%s]}
`, spirePath, database, blockPath, database)
}

// server is a process of the host that a test kills and starts again.
type server struct {
	t       *testing.T
	h       *e2e.H
	path    string // of its socket
	command func() *exec.Cmd
	process *node.Process
}

func (s *server) start() {
	s.t.Helper()
	log := filepath.Join(s.h.Dir(), filepath.Base(s.path)+".log")
	p, err := node.StartProcess(s.command(), log)
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = p
	s.t.Cleanup(p.Kill)
	s.h.Eventually(func() error {
		if st, err := os.Stat(s.path); err != nil || st.Mode()&os.ModeSocket == 0 {
			text, _ := os.ReadFile(log)
			return fmt.Errorf("%s does not exist: %v: %s", s.path, err, node.Tail(string(text), 20))
		}
		return nil
	})
}

func (s *server) kill() { s.process.Kill() }

// client is a container whose process stays connected to a server.
type client struct {
	*e2e.Container
	h   *e2e.H
	pid int
}

func runClient(h *e2e.H, pod *e2e.Pod, k kit, name, shell string) *client {
	c := pod.Run(node.ContainerOptions{Name: name, User: 1000, Group: 1000, Command: []string{"sh", "-c", "exec /client " + shell},
		ReadonlyRootfs: true, Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}},
		Mounts: []*cri.Mount{{HostPath: k.Client, ContainerPath: "/client", Readonly: true}}})
	return &client{Container: c, h: h, pid: c.PID()}
}

// lines returns what the client printed about connections that worked.
func (c *client) lines() []string {
	var all []string
	for line := range strings.Lines(c.Logs()) {
		if !strings.Contains(line, "waits:") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// wantConnection waits until the client has printed n lines, and returns the last. The container must not have restarted.
func (c *client) wantConnection(t *testing.T, n int) string {
	t.Helper()
	c.h.Eventually(func() error {
		if lines := c.lines(); len(lines) < n {
			return fmt.Errorf("container %s connected %d times, want %d: %s", c.Name(), len(lines), n, node.Tail(c.Logs(), 5))
		}
		return nil
	})
	if now := c.PID(); now != c.pid {
		t.Errorf("the process of container %s is %d, want %d as before", c.Name(), now, c.pid)
	}
	return c.lines()[n-1]
}

// A SPIFFE agent, Open vSwitch's database server and a vhost-user-blk server are killed and started again, also with their
// directories, and while the plugin is down. The running containers, which have no privileges, connect again.
func TestContainersConnectAgainToRestartedServers(t *testing.T) {
	k := readKit(t)
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/spire")
		h.MkdirAll("/run/storage")
		database := ovs.New(t)
		plugin := h.StartPlugin(node.PluginOptions{Config: newConfig(database.Endpoint())})
		generation := 0
		spire := &server{t: t, h: h, path: spirePath, command: func() *exec.Cmd {
			return exec.Command(k.Client, "serve-spiffe", spirePath, fmt.Sprint("agent-", generation))
		}}
		disk := filepath.Join(h.Dir(), "disk.img")
		block := &server{t: t, h: h, path: blockPath, command: func() *exec.Cmd { return k.Storage.Command(disk, blockPath) }}
		startAll := func() {
			t.Helper()
			generation++
			if err := os.WriteFile(disk, make([]byte, generation<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			spire.start()
			database.StartDatabase()
			block.start()
		}
		killAll := func() {
			spire.kill()
			database.KillDatabase()
			block.kill()
		}
		startAll()
		pod := h.RunPod(node.PodOptions{Name: "restarts", Namespace: "apps", Annotations: map[string]string{"devices.jackfield.dev": `[socket:spire, socket:ovs-db, {device: "socket:disk"}]`}})
		identity := runClient(h, pod, k, "spiffe", "spiffe /run/spire/agent.sock")
		rows := runClient(h, pod, k, "ovsdb", "ovsdb /srv/ovs/db.sock")
		blocks := runClient(h, pod, k, "block", "block $JACKFIELD_SOCKET_DISK")
		servers := map[string]bool{}
		works := func() {
			t.Helper()
			if got, want := identity.wantConnection(t, generation), fmt.Sprintf("identity spiffe://example.org/agent-%d/user/1000", generation); got != want {
				t.Errorf("the SPIFFE client has %q, want %q", got, want)
			}
			if got := rows.wantConnection(t, generation); !strings.HasPrefix(got, "server ") || servers[got] {
				t.Errorf("the database client has %q, after %v", got, servers)
			} else {
				servers[got] = true
			}
			if got, want := blocks.wantConnection(t, generation), fmt.Sprint("capacity ", generation<<20); got != want {
				t.Errorf("the block client has %q, want %q", got, want)
			}
		}
		works()
		killAll()
		startAll()
		works()
		// With their directories, as systemd does for RuntimeDirectory=.
		killAll()
		for _, dir := range []string{"/run/spire", "/run/storage"} {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		startAll()
		works()
		// While the plugin is down. It writes its records a moment after the containers' creation.
		for _, c := range []*client{identity, rows, blocks} {
			h.Eventually(func() error {
				_, err := os.Stat("/run/jackfield/status/" + c.ID)
				return err
			})
		}
		plugin.Kill()
		killAll()
		startAll()
		plugin.Restart()
		works()
		killAll()
		startAll()
		works()

		const paths = "/var/run/jackfield/named/spire/agent.sock /var/run/jackfield/named/ovs-db/db.sock /var/run/jackfield/named/disk/blk.sock"
		if got := identity.Output("sh", "-c", "echo $JACKFIELD_SOCKET_SPIRE $JACKFIELD_SOCKET_OVS_DB $JACKFIELD_SOCKET_DISK"); got != paths {
			t.Errorf("the variables are %q, want %q", got, paths)
		}
		if got := identity.Output("ls", "/run/spire", "/srv/ovs"); strings.Join(strings.Fields(got), " ") != "/run/spire: agent.sock /srv/ovs: db.sock" {
			t.Errorf("the container sees more than its sockets: %q", got)
		}
		out, err := h.Command("jackfield", "status", "--config", plugin.ConfigFile, "restarts").CombinedOutput()
		for _, want := range []string{`socket "spire"`, `socket "ovs-db"`, `socket "disk"`, "workloads"} {
			if err != nil || !strings.Contains(string(out), want) {
				t.Fatalf("jackfield status has no %q (%v):\n%s", want, err, out)
			}
		}
	})
}

// A container that is created before the server waits for its socket, or is refused, as configured. A pod of another
// namespace gets nothing.
func TestSocketOfServerThatIsNotThereYet(t *testing.T) {
	k := readKit(t)
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		plugin := h.StartPlugin(node.PluginOptions{Config: newConfig("/run/ovs/db.sock")})
		pod := h.RunPod(node.PodOptions{Name: "early", Namespace: "apps", Annotations: map[string]string{
			"devices.jackfield.dev/container.app": "socket:spire", "devices.jackfield.dev/container.strict": "socket:disk", "devices.jackfield.dev/container.tolerant": `[{device: "socket:disk", optional: true}]`}})
		app := runClient(h, pod, k, "app", "spiffe /run/spire/agent.sock")
		app.WaitLogs("waits:")
		if err := pod.CreateFails(node.ContainerOptions{Name: "strict"}); !strings.Contains(err.Error(), "its server has not created this socket yet") || !strings.Contains(err.Error(), "sockets.named.disk.path") {
			t.Errorf("a container that does not wait: %v", err)
		}
		if got := pod.Run(node.ContainerOptions{Name: "tolerant"}).Output("sh", "-c", "echo ${JACKFIELD_SOCKET_DISK-none}"); got != "none" {
			t.Errorf("a container whose socket is optional has %q", got)
		}
		foreign := h.RunPod(node.PodOptions{Name: "foreign", Namespace: "other", Annotations: map[string]string{"devices.jackfield.dev": "socket:spire"}})
		if err := foreign.CreateFails(node.ContainerOptions{}); !strings.Contains(err.Error(), `deny named socket "spire"`) || !strings.Contains(err.Error(), "policy.rules in "+plugin.ConfigFile) {
			t.Errorf("a pod without a grant: %v", err)
		}
		h.MkdirAll("/run/spire")
		spire := &server{t: t, h: h, path: spirePath, command: func() *exec.Cmd { return exec.Command(k.Client, "serve-spiffe", spirePath, "late") }}
		spire.start()
		if got := app.wantConnection(t, 1); got != "identity spiffe://example.org/late/user/1000" {
			t.Errorf("the client has %q", got)
		}
	})
}

// The containers of a pod with a user namespace (hostUsers: false) get named sockets, and get them again from restarted
// servers. Access is that of the user of the host to which the namespace maps the container's user: the SPIFFE server
// sees that user on the connection. The database's socket is root's and closed to others.
func TestNamedSocketsReachUserNamespaces(t *testing.T) {
	const hostRoot = 200000
	k := readKit(t)
	e2e.EachUserNS(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/spire")
		database := ovs.New(t)
		plugin := h.StartPlugin(node.PluginOptions{Config: newConfig(database.Endpoint())})
		generation := 0
		spire := &server{t: t, h: h, path: spirePath, command: func() *exec.Cmd {
			return exec.Command(k.Client, "serve-spiffe", spirePath, fmt.Sprint("agent-", generation))
		}}
		startAll := func() {
			t.Helper()
			generation++
			spire.start()
			database.StartDatabase()
		}
		startAll()
		pod := h.RunPod(node.PodOptions{Name: "mapped", Namespace: "apps", UserNS: hostRoot, Annotations: map[string]string{"devices.jackfield.dev": "socket:spire, socket:ovs-db"}})
		identity := runClient(h, pod, k, "spiffe", "spiffe /run/spire/agent.sock")
		rows := runClient(h, pod, k, "ovsdb", "ovsdb $JACKFIELD_SOCKET_OVS_DB")
		if got := identity.Output("sh", "-c", "cat /proc/self/uid_map | tr -s ' '"); strings.TrimSpace(got) != fmt.Sprintf("0 %d 65536", hostRoot) {
			t.Fatalf("the container has no user namespace: %q", got)
		}
		works := func() {
			t.Helper()
			if got, want := identity.wantConnection(t, generation), fmt.Sprintf("identity spiffe://example.org/agent-%d/user/%d", generation, hostRoot+1000); got != want {
				t.Errorf("the SPIFFE client has %q, want %q", got, want)
			}
			if got := rows.wantConnection(t, generation); !strings.HasPrefix(got, "server ") {
				t.Errorf("the database client has %q", got)
			}
		}
		works()
		spire.kill()
		database.KillDatabase()
		startAll()
		works()
		// A restarted plugin has the mapping on record.
		plugin.Kill()
		spire.kill()
		database.KillDatabase()
		startAll()
		plugin.Restart()
		works()
	})
}
