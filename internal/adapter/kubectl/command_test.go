// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubectl is a program in place of kubectl. It notes its arguments, and answers by their second or first word.
const kubectl = `#!/bin/sh
dir=$(dirname "$0")
printf '%s\n' "$*" >>"$dir/log"
case "$*" in
*" get "*" pod "*|"get "*" pod "*) name=pod ;;
*"get "*) name=pods ;;
*" status "*--output=json*) name=status ;;
*) cat >"$dir/stdin"; name=exec ;;
esac
[ -f "$dir/$name.err" ] && cat "$dir/$name.err" >&2
[ -f "$dir/$name" ] && cat "$dir/$name"
exit "$(cat "$dir/$name.code" 2>/dev/null || echo 0)"
`

const (
	scheduled = `{"metadata":{"name":"fwd-0","namespace":"telco","uid":"u1"},"spec":{"nodeName":"n2"},"status":{"phase":"Running"}}`
	plugins   = `{"items":[
		{"metadata":{"name":"jackfield-test","namespace":"net"},"spec":{"containers":[{"name":"other"}]},"status":{"phase":"Running"}},
		{"metadata":{"name":"jackfield-old","namespace":"net","deletionTimestamp":"2026-11-01T00:00:00Z"},"spec":{"containers":[{"name":"jackfield-nri"}]},"status":{"phase":"Running"}},
		{"metadata":{"name":"jackfield-x","namespace":"net"},"spec":{"containers":[{"name":"jackfield-nri"}]},"status":{"phase":"Running"}}]}`
	reduced       = `{"metadata":{"name":"fwd-0","namespace":"telco","uid":"u1"},"spec":{},"status":{}}`
	twoNamespaces = `{"items":[
		{"metadata":{"name":"x","namespace":"attacker"},"spec":{"containers":[{"name":"jackfield-nri"}]},"status":{"phase":"Running"}},
		{"metadata":{"name":"other","namespace":"third"},"spec":{"containers":[{"name":"other"}]},"status":{"phase":"Running"}},
		{"metadata":{"name":"jackfield-x","namespace":"net"},"spec":{"containers":[{"name":"jackfield-nri"}]},"status":{"phase":"Pending"}}]}`
	nodeStatus = `{"containers":[{"sandbox":"old","podUID":"u0"}],"sandboxes":[{"id":"other","uid":"u2"},{"id":"e061","uid":"u1"}]}`
	terminated = "some message\ncommand terminated with exit code "
	noExec     = `Error from server (Forbidden): pods "jackfield-x" is forbidden: User "jane" cannot create resource "pods/exec" in API group "" in the namespace "net"`
)

func TestPluginRunsCommandInPodOfNode(t *testing.T) {
	const search = "--kubeconfig=k --context=c get --output=json pods --all-namespaces --selector=app.kubernetes.io/name=jackfield\n"
	const onNode = "--kubeconfig=k --context=c get --output=json pods --namespace=net --selector=app.kubernetes.io/name=jackfield --field-selector=spec.nodeName=n2\n"
	const find = search + onNode
	const run = "--kubeconfig=k --context=c exec --namespace=net jackfield-x --container=jackfield-nri "
	const get = "--kubeconfig=k --context=c get --output=json pod fwd-0 --namespace=telco\n"
	for name, tc := range map[string]struct {
		args     string
		files    map[string]string
		code     int
		log, err string
		stdin    string
		env      string // JACKFIELD_NAMESPACE
	}{
		"status": {args: "status fwd-0 -n telco", log: get + find + run + "-- jackfield status telco/fwd-0 --output=text --color=never\n"},
		"sockets": {args: "sockets pod/fwd-0 -n telco -o wide", files: map[string]string{"exec.code": "1", "exec.err": terminated + "1\n"},
			code: 1, err: "some message\n", log: get + find + run + "-- jackfield sockets telco/fwd-0 --output=wide --color=never\n"},
		"explain": {args: "explain telco/fwd-0 -o json", files: map[string]string{"status.code": "1", "status.err": terminated + "1\n", "exec.code": "3", "exec.err": terminated + "3"}, code: 3,
			err: "some message\n", stdin: reduced,
			log: get + find + run + "-- jackfield status telco/fwd-0 --output=json --color=never\n" + run + "--stdin -- jackfield explain - --output=json --sandbox-id e061 --color=never\n"},
		"plugin does not answer": {args: "explain telco/fwd-0", files: map[string]string{"status": "", "status.code": "3", "status.err": terminated + "3\n"}, code: 3,
			err: "some message\n", log: get + find + run + "-- jackfield status telco/fwd-0 --output=json --color=never\n"},
		"doctor": {args: "doctor --node n2", log: find + run + "-- jackfield doctor --output=text --color=never\n"},
		"no pod": {args: "status fwd-0 -n telco", files: map[string]string{"pod.code": "1", "pod.err": "Error from server (NotFound): pods \"fwd-0\x1b\" not found"}, code: 1, log: get,
			err: "kubectl-jackfield: Error from server (NotFound): pods \"fwd-0?\" not found\nhint: check the name and --namespace\n"},
		"kubectl says nothing": {args: "status fwd-0 -n telco", files: map[string]string{"pod.code": "1"}, code: 3, log: get, err: "kubectl-jackfield: run kubectl: exit status 1\n"},
		"not scheduled": {args: "status fwd-0 -n telco", code: 3, log: get, files: map[string]string{
			"pod": `{"metadata":{"name":"fwd-0","namespace":"telco"},"status":{"conditions":[{"type":"PodScheduled","status":"False","message":"0/3 nodes are available"}]}}`},
			err: "kubectl-jackfield: pod telco/fwd-0 is not on a node yet: 0/3 nodes are available\nhint: `jackfield explain` and `jackfield policy check` take its manifest\n"},
		"no plugin": {args: "status fwd-0 -n telco", code: 3, log: get + find, files: map[string]string{
			"pods": `{"items":[{"metadata":{"name":"jackfield-x","namespace":"net"},"spec":{"containers":[{"name":"jackfield-nri"}]},"status":{"phase":"Pending"}}]}`},
			err: "kubectl-jackfield: no pod with the labels app.kubernetes.io/name=jackfield runs on node n2; pod net/jackfield-x is Pending\n" +
				"hint: check that Jackfield is installed, and the nodeSelector and tolerations of its DaemonSet; --selector and --plugin-namespace name other pods\n"},
		"pods of two namespaces": {args: "status fwd-0 -n telco", code: 3, log: get + search, files: map[string]string{"pods": twoNamespaces},
			err: "kubectl-jackfield: 2 namespaces have pods with the labels app.kubernetes.io/name=jackfield: attacker, net\n" +
				"hint: name the namespace in which you installed Jackfield with --plugin-namespace or JACKFIELD_NAMESPACE; check who created the pods in the others\n"},
		"namespace from the environment": {args: "status fwd-0 -n telco", env: "net", log: get + onNode + run + "-- jackfield status telco/fwd-0 --output=text --color=never\n"},
		"namespace from the flag": {args: "status fwd-0 -n telco --plugin-namespace net", env: "other",
			log: get + onNode + run + "-- jackfield status telco/fwd-0 --output=text --color=never\n"},
		"no installation": {args: "doctor --node n2", code: 3, log: search, files: map[string]string{"pods": `{"items":[]}`},
			err: "kubectl-jackfield: no namespace has pods with the labels app.kubernetes.io/name=jackfield and a container jackfield-nri\nhint: " + checkInstalled + "\n"},
		"control characters": {args: "sockets fwd-0 -n telco -o json", code: 1, files: map[string]string{"exec.code": "1", "exec.err": "\x1b]0;title\a" + terminated + "1\n"},
			err: "?]0;title?some message\n", log: get + find + run + "-- jackfield sockets telco/fwd-0 --output=json --color=never\n"},
		"no right to exec": {args: "status fwd-0 -n telco", code: 3, files: map[string]string{"exec.code": "1", "exec.err": noExec},
			log: get + find + run + "-- jackfield status telco/fwd-0 --output=text --color=never\n",
			err: "kubectl-jackfield: " + noExec + "\nhint: to allow it to \"jane\", add to the rules of a Role and a RoleBinding of the namespace \"net\": {apiGroups: [\"\"], resources: [\"pods/exec\"], verbs: [create]}" +
				"; this permission gives control of the nodes: as a tenant, use `kubectl describe pod`\n"},
		"plugin is gone": {args: "status fwd-0 -n telco", code: 3, files: map[string]string{"exec.code": "1", "exec.err": `Error from server (NotFound): pods "jackfield-x" not found`},
			log: get + find + run + "-- jackfield status telco/fwd-0 --output=text --color=never\n",
			err: "kubectl-jackfield: Error from server (NotFound): pods \"jackfield-x\" not found\n"},
		"no terminal":  {args: "status fwd-0 -n telco --watch", code: 2, log: get + find, err: "kubectl-jackfield: --watch needs a terminal\n"},
		"usage":        {args: "sockets", code: 2, err: "kubectl-jackfield: sockets: requires a pod, --namespace or --all-namespaces\n"},
		"two pods":     {args: "status a b", code: 2, err: "kubectl-jackfield: accepts at most 1 arg(s), received 2\n"},
		"pod and all":  {args: "status fwd-0 -A", code: 2, err: "kubectl-jackfield: --all-namespaces is not for one pod\n"},
		"watch of all": {args: "sockets -A --watch", code: 2, err: "kubectl-jackfield: --watch requires a pod\n"},
		"format":       {args: "status -o wide", code: 2, err: "kubectl-jackfield: invalid value \"wide\" of --output: must be one of text, json, yaml\n"},
		"no manifest":  {args: "explain", code: 2, err: "kubectl-jackfield: explain: requires a pod, or --filename FILE and --node NODE\n"},
		"no node for the manifest": {args: "explain -f pod.yaml", code: 2,
			err: "kubectl-jackfield: explain: --filename and --node NODE go together: the node is where the pods would run\n"},
		"no node": {args: "doctor", code: 2, err: "kubectl-jackfield: doctor: requires a pod or --node NODE\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			files := map[string]string{"pod": scheduled, "pods": plugins, "status": nodeStatus, "exec": "the answer\a\n"}
			for name, text := range tc.files {
				files[name] = text
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			args := append(strings.Fields(tc.args), "--kubeconfig", "k", "--context=c")
			code := Run(t.Context(), args, Env{Stdin: strings.NewReader("unused"), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return tc.env }})
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			if code != tc.code || string(log) != tc.log || errs.String() != tc.err {
				t.Errorf("exit status %d, want %d\n%s\nwant\n%s\nran\n%s\nwant\n%s", code, tc.code, &errs, tc.err, log, tc.log)
			}
			want := ""
			if strings.Contains(tc.log, " -- ") && files["status"] != "" {
				want = "the answer?\n"
			}
			if out.String() != want {
				t.Errorf("printed %q, want %q", &out, want)
			}
			if stdin, _ := os.ReadFile(filepath.Join(dir, "stdin")); string(stdin) != tc.stdin {
				t.Errorf("the command reads %q, want %q", stdin, tc.stdin)
			}
		})
	}
}

func TestMissingKubectlIsReported(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var errs bytes.Buffer
	code := Run(t.Context(), []string{"status", "a"}, Env{Stdout: &errs, Stderr: &errs, Getenv: os.Getenv})
	if code != exitError || !strings.Contains(errs.String(), "hint: install kubectl") {
		t.Errorf("exit status %d: %s", code, &errs)
	}
}
