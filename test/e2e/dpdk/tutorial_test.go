// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// block is a fenced block of a page.
type block struct{ lang, text string }

// pageBlocks returns the fenced blocks of a Markdown file in its order.
func pageBlocks(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllSubmatch(text, -1) {
		blocks = append(blocks, block{string(m[1]), string(m[2])})
	}
	return blocks
}

// networkOnPage and podOnPage are fields of the tutorial's manifests.
type networkOnPage struct {
	Metadata struct{ Name, Namespace string }
	Spec     struct{ Config string }
}

type podOnPage struct {
	Metadata struct {
		Name, Namespace string
		Annotations     map[string]string
	}
	Spec struct {
		Containers []struct {
			Name    string
			Command []string
		}
	}
}

// notRun are commands of the page that prepare the cluster.
var notRun = []string{"kubectl create namespace dpdk-blue", "kubectl apply -f network.yaml"}

// tutorial runs a page's commands.
type tutorial struct {
	t *testing.T
	h *e2e.H
	// vswitch runs a command of the switch or of its service. It reports whether the command is one.
	vswitch func(words []string) (out string, ok bool, err error)
	grcli   string // if it is not /usr/bin/grcli
	tree    *dpdk.Tree
	network networkOnPage
	pod     podOnPage
	sandbox *e2e.Pod
	app     *prompt // the pod's testpmd
	pid     int     // its process
	// received are the packets that testpmd counted last.
	received int
}

// The steps of the tutorial with Open vSwitch work with grout, which forgets its ports when it restarts.
// They are no page of docs/, because the distributions of the tutorials have no package of grout.
func TestGroutTutorial(t *testing.T) {
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		u := &tutorial{t: t, h: h, tree: dpdk.Lay(t)}
		s := grout.Start(t, "/run")
		u.grcli = s.Grcli
		u.vswitch = func(words []string) (string, bool, error) {
			switch {
			case words[0] == "grcli":
				cmd := exec.Command(s.Grcli, append([]string{"-s", s.Socket}, words[1:]...)...)
				cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
				out, err := cmd.CombinedOutput()
				return string(out), true, err
			case strings.Join(words, " ") == "grout -t":
				s.Kill()
				s.Restart()
				return "", true, nil
			}
			return "", false, nil
		}
		u.follow("testdata/grout.md")
		if ports := s.Ports(); len(ports) != 0 {
			t.Errorf("the removed pod left ports: %s", ports)
		}
	})
}

// follow runs a page from its beginning to its end.
func (u *tutorial) follow(page string) {
	u.t.Helper()
	blocks, ran := pageBlocks(u.t, page), 0
	for i, b := range blocks {
		switch b.lang {
		case "yaml":
			u.file(b.text)
		case "sh", "testpmd":
			want := ""
			if i+1 < len(blocks) && blocks[i+1].lang == "text" {
				want = blocks[i+1].text
			}
			u.expect(b, want)
			ran++
		}
	}
	if ran < 12 {
		u.t.Errorf("the page has only %d blocks of commands", ran)
	}
}

// file stores a file of the page at the path that the page gives.
func (u *tutorial) file(text string) {
	u.t.Helper()
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	switch name {
	case "/etc/jackfield/config.yaml":
		if u.grcli != "" {
			text = strings.Replace(text, "type: grout\n", "type: grout\n    grcli: "+u.grcli+"\n", 1)
		}
		u.h.WriteFile(name, text)
		u.h.StartPlugin(node.PluginOptions{Args: []string{"--config", name}})
	case "network.yaml":
		u.decode(text, &u.network)
	case "pod.yaml":
		u.decode(text, &u.pod)
	default:
		u.t.Fatalf("the page has a file %q that the test does not know", name)
	}
}

func (u *tutorial) decode(text string, into any) {
	u.t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		u.t.Fatal(err)
	}
}

// expect runs the commands of a block until they print what the page shows. Numbers other than 0 may differ.
// Commands without an output on the page have to succeed.
func (u *tutorial) expect(b block, want string) {
	u.t.Helper()
	number := regexp.MustCompile(`[1-9]\d*`)
	normal := func(s string) string { return number.ReplaceAllString(strings.TrimSpace(s), "N") }
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var got strings.Builder
		for line := range strings.Lines(b.text) {
			if b.lang == "testpmd" {
				got.WriteString(u.testpmd(strings.TrimSpace(line)))
			} else {
				out, err := u.shell(strings.TrimSpace(line))
				if err != nil && want == "" {
					u.t.Fatalf("%s%v: %s", line, err, out)
				}
				got.WriteString(out)
			}
		}
		if want == "" || strings.Contains(normal(got.String()), normal(want)) {
			u.t.Logf("%s%s", b.text, got.String())
			return
		}
		if time.Now().After(end) {
			u.t.Fatalf("%sprints\n%swant\n%s", b.text, got.String(), want)
		}
	}
}

// shell runs a command of the page.
func (u *tutorial) shell(line string) (string, error) {
	u.t.Helper()
	words := strings.Fields(line)
	if out, ok, err := u.vswitch(words); ok {
		return out, err
	}
	switch {
	case words[0] == "ip" || words[0] == "ping" || words[0] == "jackfield":
		cmd := u.h.Command(words[0], words[1:]...)
		if words[0] == "ping" {
			cmd = exec.Command(u.h.Kit().Busybox, words...)
		}
		out, err := cmd.CombinedOutput()
		// Busybox's ping counts "packets received".
		return strings.ReplaceAll(string(out), " packets received", " received"), err
	case line == "kubectl apply -f pod.yaml":
		u.runPod()
	case line == "kubectl delete -f pod.yaml":
		if pid := u.app.ctr.PID(); pid != u.pid {
			u.t.Errorf("the container's process is %d and was %d", pid, u.pid)
		}
		u.attach("DEL")
		u.sandbox.Remove()
	case slices.Contains(notRun, line):
	default:
		u.t.Fatalf("the page has a command %q that the test does not know", line)
	}
	return "", nil
}

// attach does what Multus does with a network of a pod: it runs jackfield-cni with the network's configuration.
func (u *tutorial) attach(command string) {
	u.t.Helper()
	netns := ""
	for _, n := range u.sandbox.OCISpec().Linux.Namespaces {
		if n.Type == rspec.NetworkNamespace {
			netns = n.Path
		}
	}
	plugin, err := u.h.Kit().Command("jackfield-cni")
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.Command(plugin)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + u.sandbox.ID, "CNI_NETNS=" + netns, "CNI_IFNAME=net1",
		"CNI_PATH=/opt/cni/bin", "CNI_ARGS=IgnoreUnknown=true;K8S_POD_NAMESPACE=" + u.sandbox.Namespace() + ";K8S_POD_NAME=" + u.sandbox.Name()}
	cmd.Stdin = strings.NewReader(u.network.Spec.Config)
	if out, err := cmd.CombinedOutput(); err != nil {
		u.t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// runPod runs the pod of the page with the network of the page.
func (u *tutorial) runPod() {
	u.t.Helper()
	u.sandbox = u.h.RunPod(node.PodOptions{Name: u.pod.Metadata.Name, Namespace: u.pod.Metadata.Namespace, Annotations: u.pod.Metadata.Annotations})
	u.t.Cleanup(func() {
		if u.t.Failed() {
			u.attach("DEL")
		}
	})
	u.attach("ADD")
	c := u.pod.Spec.Containers[0]
	command := append([]string{"sh", "-c", `mkfifo /tmp/in && exec 3<>/tmp/in && exec "$@" <&3`, "sh"}, c.Command...)
	ctr := u.sandbox.Run(node.ContainerOptions{Name: c.Name, TTY: true, Mounts: u.tree.Mounts(), Command: command, Env: []string{"PATH=/usr/bin:/bin"}})
	printed(u.t, ctr)
	u.app, u.pid = &prompt{u.t, u.h, ctr}, ctr.PID()
}

// testpmd runs a command in the pod's testpmd, and returns what it prints within a second.
func (u *tutorial) testpmd(line string) string {
	u.t.Helper()
	from := len(u.app.ctr.Logs())
	u.app.command(line, "") // the echo is mixed with messages of drivers
	time.Sleep(time.Second)
	out := u.app.ctr.Logs()[from:]
	if m := regexp.MustCompile(`RX-packets: (\d+)`).FindStringSubmatch(out); m != nil {
		received, _ := strconv.Atoi(m[1])
		if received <= u.received {
			u.t.Errorf("testpmd has received %d packets, and %d before", received, u.received)
		}
		u.received = received
	}
	return out
}
