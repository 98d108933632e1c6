// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/report/status"
)

// fleetKubectl is a program in place of kubectl that answers for several nodes. The files of a pod are its answer, its
// standard error and its exit status.
const fleetKubectl = `#!/bin/sh
dir=$(dirname "$0")
case "$*" in
"get "*" nodes "*) cat "$dir/nodes" ;;
"get "*) cat "$dir/pods" ;;
"create "*) echo "$*" >>"$dir/log"; cat "$dir/objects" ;;
"exec "*)
	echo "$*" >>"$dir/log"
	[ "$5" = --stdin ] && cat >"$dir/stdin"
	cat "$dir/$3" 2>/dev/null
	cat "$dir/$3.err" >&2 2>/dev/null
	code=$(cat "$dir/$3.code" 2>/dev/null || echo 0)
	[ "$code" = 0 ] || echo "command terminated with exit code $code" >&2
	exit "$code" ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac
`

// healthyNode is the status of a plugin without a problem.
func healthyNode() *status.Node {
	return &status.Node{Version: "v1", Registered: true, Runtime: &status.Runtime{Name: "containerd", Version: "2.1.4"},
		Containers: []status.Container{{Pod: "fwd-0"}}}
}

// runFleet runs a command line with kubectl's answers in files.
func runFleet(t *testing.T, args string, files map[string]string) (code int, out, errs, dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(fleetKubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = Run(t.Context(), strings.Fields(args), Env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(string) string { return "" }})
	return code, stdout.String(), stderr.String(), dir
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fleetOf returns the files of nodes n1, n2 ..., each with a running plugin p1, p2 ... that answers with a status.
func fleetOf(t *testing.T, statuses ...*status.Node) map[string]string {
	t.Helper()
	files := map[string]string{}
	var nodes, pods []string
	for i, s := range statuses {
		nodes = append(nodes, fmt.Sprintf(`{"metadata":{"name":"n%d"}}`, i+1))
		pods = append(pods, fmt.Sprintf(`{"metadata":{"name":"p%[1]d","namespace":"net"},"spec":{"nodeName":"n%[1]d",`+
			`"containers":[{"name":"jackfield-nri"}]},"status":{"phase":"Running"}}`, i+1))
		files[fmt.Sprintf("p%d", i+1)] = toJSON(t, s)
	}
	files["nodes"] = `{"items":[` + strings.Join(nodes, ",") + `]}`
	files["pods"] = `{"items":[` + strings.Join(pods, ",") + `]}`
	return files
}

// Every problem that the daemon reports is in the row of its node, which is healthy without one.
func TestFleetShowsProblemsOfNode(t *testing.T) {
	for want, change := range map[string]func(*status.Node){
		"": func(*status.Node) {},
		"not registered with a runtime: new containers start without devices and sockets": func(n *status.Node) {
			n.Registered = false
		},
		"use containerd": func(n *status.Node) { n.Remedy = "use containerd" },
		"rejects the newer configuration: x:3: wrong; so": func(n *status.Node) { n.Config.Error = "x:3: wrong; so" },
		"1 running containers lack what they requested":   func(n *status.Node) { n.Missed = make([]status.Container, 1) },
		"sockets are not known: why":                      func(n *status.Node) { n.SocketsError = "why" },
		"vswitch ovs is unreachable: refused":             vswitchState(vswitch.Status{Checked: true, Error: "refused"}),
		"vswitch ovs lacks 2 ports of running pods":       vswitchState(vswitch.Status{Checked: true, Answering: true, Missing: 2}),
		"vswitch ovs is not checked yet":                  vswitchState(vswitch.Status{}),
		"2 device nodes of running containers lead to another device": func(n *status.Node) {
			n.ReusedNumbers = make([]status.ReusedNumber, 2)
		},
		"3 device nodes of running containers lead to no device": func(n *status.Node) { n.RemovedDevices = make([]status.LostDevice, 3) },
	} {
		n := healthyNode()
		change(n)
		code, out, errs, _ := runFleet(t, "status -o json", fleetOf(t, n))
		var rows []nodeHealth
		if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 {
			t.Fatalf("%s: %v: %s%s", want, err, out, errs)
		}
		row := rows[0]
		wantCode, healthy := exitNo, new(bool)
		switch {
		case want == "":
			wantCode, *healthy = 0, true
		case strings.Contains(want, "not checked"):
			wantCode, healthy = exitError, nil
		}
		if got := strings.Join(row.Problems, "|"); got != want || code != wantCode || cmp.Diff(healthy, row.Healthy) != "" {
			t.Errorf("problems %q, exit status %d, healthy %v; must be %q, %d, %v", got, code, row.Healthy, want, wantCode, healthy)
		}
	}
}

func vswitchState(v vswitch.Status) func(*status.Node) {
	v.Name = "ovs"
	return func(n *status.Node) { n.Vswitches = []vswitch.Status{v} }
}

// No node that could not be read is healthy, and its row has the reason.
func TestFleetShowsNodesThatCannotBeRead(t *testing.T) {
	down := healthyNode()
	down.Registered = false
	files := fleetOf(t, healthyNode(), healthyNode(), healthyNode(), healthyNode(), down)
	files["p2"], files["p2.code"], files["p2.err"] = "", "3", "jackfield: ask jackfield-nri: timeout\n\x1b[2Jhint: x\n"
	files["p3"] = "{}"
	files["p4"], files["p4.code"] = toJSON(t, healthyNode()), "1"
	files["nodes"] = strings.Replace(files["nodes"], "]}", `,{"metadata":{"name":"n6"}},{"metadata":{"name":"n7"}}]}`, 1)
	files["pods"] = strings.Replace(files["pods"], `"}}]}`, `"}},{"metadata":{"name":"p7","namespace":"net"},
		"spec":{"nodeName":"n7","containers":[{"name":"jackfield-nri"}]},"status":{"phase":"Pending",
		"containerStatuses":[{"state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}]}`, 1)
	files["p5.code"] = "1"
	code, out, errs, _ := runFleet(t, "status", files)
	const want = `NODE  VERSION  RUNTIME           CONTAINERS  HEALTHY  PROBLEMS
n1    v1       containerd 2.1.4  1           yes      -
n2    -        -                 -           unknown  ask jackfield-nri: timeout ?[2Jhint: x
n3    -        -                 -           unknown  the answer of the plugin is not a status
n4    v1       containerd 2.1.4  1           NO       ` + "`jackfield status`" + ` ends with exit status 1
n5    v1       NOT REGISTERED    1           NO       not registered with a runtime: new containers start without devices and sockets
n6    -        -                 -           unknown  no pod of Jackfield runs here
n7    -        -                 -           unknown  no pod of Jackfield runs here; pod net/p7 is Pending (ImagePullBackOff)
`
	if d := cmp.Diff(want, out); d != "" || code != exitNo || !strings.Contains(errs, "doctor --node NODE") {
		t.Errorf("exit status %d, %s%s", code, errs, d)
	}
	files = fleetOf(t, healthyNode(), healthyNode())
	files["p2.code"] = "3"
	if code, _, errs, _ := runFleet(t, "status", files); code != exitError {
		t.Errorf("exit status %d with an unread node: %s", code, errs)
	}
	files["nodes"] = `{"items":[]}`
	if code, _, errs, _ := runFleet(t, "status --node-selector=a=b", files); code != exitError ||
		!strings.Contains(errs, "no node has the labels a=b") {
		t.Errorf("exit status %d without nodes: %s", code, errs)
	}
}

// A plugin that hangs does not hold up the other rows.
func TestFleetBoundsWaitForNode(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var plugin pod
	plugin.Metadata.Name = "p1"
	plugin.Spec.Containers = []struct{ Name string }{{container}}
	plugin.Status.Phase = "Running"
	c := &client{env: Env{Getenv: os.Getenv}}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	a := c.queryNode(ctx, "n1", []pod{plugin}, []string{"status"})
	if h := healthOf(&a); h.Healthy != nil || !strings.Contains(strings.Join(h.Problems, ""), "p1 did not answer within") {
		t.Errorf("%+v", h)
	}
}

// The commands for all namespaces, or one, print the answer of each node.
func TestAnswersOfAllNodes(t *testing.T) {
	const sockets = "CONTAINER  PATH\na  b\n"
	for name, tc := range map[string]struct {
		args, p1, p2, code2 string
		code                int
		out, errs, command  string
	}{
		"all": {args: "sockets -A -o wide", p1: sockets, p2: sockets, command: "sockets --output=wide --color=never",
			out: "Node n1\n\n" + sockets + "\nNode n2\n\n" + sockets + "\n"},
		"one namespace": {args: "status -n telco", p1: "x\n", code2: "1", out: "Node n1\n\nx\n\n",
			command: "status --output=text --namespace=telco --color=never"},
		"a node has a problem": {args: "status -A", p1: "x\n", p2: "y\n", code2: "1", code: 1,
			out: "Node n1\n\nx\n\nNode n2\n\ny\n\n", command: "status --output=text --color=never"},
		"unread node": {args: "sockets -A", p1: "x\n", code2: "3", code: 3, out: "Node n1\n\nx\n\n",
			errs: "kubectl-jackfield: node n2: why\n", command: "sockets --output=text --color=never"},
		"json": {args: "sockets -A -o json", p1: "[1]", p2: "[2", code: 3,
			out:  "[\n  {\n    \"node\": \"n1\",\n    \"result\": [\n      1\n    ]\n  },\n  {\n    \"node\": \"n2\",\n    \"error\": \"the answer is not JSON\"\n  }\n]\n",
			errs: "", command: "sockets --output=json --color=never"},
		"yaml": {args: "sockets -A -o yaml", p1: `[{"path":"yes","inode":12345678901234}]`, p2: "[]",
			command: "sockets --output=json --color=never",
			out:     "- node: n1\n  result:\n    - path: \"yes\"\n      inode: 12345678901234\n- node: n2\n  result: []\n"},
		"nothing anywhere": {args: "sockets -n telco", code2: "1", code: 1, command: "sockets --output=text --namespace=telco --color=never",
			errs: "kubectl-jackfield: no node has an answer for namespace telco\n"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fleetOf(t, healthyNode(), healthyNode())
			files["p1"], files["p2"], files["p2.code"] = tc.p1, tc.p2, stdcmp.Or(tc.code2, "0")
			if tc.code2 != "" {
				files["p2.err"] = "jackfield: why\n"
			}
			code, out, errs, dir := runFleet(t, tc.args, files)
			if code != tc.code || out != tc.out || errs != tc.errs {
				t.Errorf("exit status %d, must be %d\n%s%s", code, tc.code, errs, cmp.Diff(tc.out, out))
			}
			log, err := os.ReadFile(filepath.Join(dir, "log"))
			if err != nil || strings.Count(string(log), "-- jackfield "+tc.command) != 2 {
				t.Errorf("%v: ran %s", err, log)
			}
		})
	}
}

// Secrets in a manifest and its other objects stay, and the pods and claims leave.
func TestExplainOfManifestReducesObjects(t *testing.T) {
	pod := strings.ReplaceAll(secretPod, "CONTAINER", secretContainer)
	template := strings.Replace(pod, `"apiVersion":"v1","kind":"Pod",`, "", 1)
	list := `{"apiVersion":"v1","kind":"List","items":[
		{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n"},"spec":{"replicas":2,"template":` + template + `}},
		{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"c"},"spec":{"jobTemplate":{"spec":{"template":` + template + `}}}},
		{"apiVersion":"v1","kind":"PodTemplate","metadata":{"name":"t"},"template":` + template + `},
		{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"SECRET"}},
		{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"s"},"data":{"a":"SECRET"}},
		{"apiVersion":"example.com/v1","kind":"Mail","metadata":{"name":"m"},"spec":{"template":"SECRET"}},
		{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"shared","annotations":{"` + lastApplied + `":"SECRET"}},"spec":{"devices":{}}}]}`
	objects := pod + list
	files := fleetOf(t, healthyNode())
	files["objects"], files["p1"], files["p1.code"] = objects, "the answer\n", "1"
	code, out, errs, dir := runFleet(t, "explain -f pod.yaml --node n1 -n telco", files)
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	const wantLog = "create --dry-run=client --output=json --filename=pod.yaml --namespace=telco\n" +
		"exec --namespace=net p1 --container=jackfield-nri --stdin -- jackfield explain - --output=text --color=never\n"
	if code != 1 || out != "the answer\n" || string(log) != wantLog {
		t.Errorf("exit status %d: %s%s\n%s", code, out, errs, log)
	}
	reduced, err := os.ReadFile(filepath.Join(dir, "stdin"))
	if err != nil || bytes.Contains(reduced, []byte("SECRET")) {
		t.Fatalf("%v: %s", err, reduced)
	}
	whole := describePods(t, strings.Replace(objects, list, "\n---\n"+list, 1))
	if d := cmp.Diff(whole, describePods(t, string(reduced))); d != "" || len(whole) < 12 {
		t.Errorf("-whole +reduced\n%s", d)
	}
	var left struct{ Items []struct{ Kind string } }
	if err := json.Unmarshal(reduced, &left); err != nil || fmt.Sprint(left.Items) !=
		"[{Pod} {Deployment} {CronJob} {PodTemplate} {ResourceClaim}]" {
		t.Errorf("%v: %v", err, left.Items)
	}
	files["objects"] = `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":"wrong"}}`
	if code, _, errs, _ := runFleet(t, "explain -f pod.yaml --node n1", files); code != exitError ||
		!strings.Contains(errs, "read the objects from kubectl") {
		t.Errorf("exit status %d: %s", code, errs)
	}
}
