// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"
)

// Limits of the requests to many nodes. The plugin itself answers within ten seconds.
const (
	maxRequests = 8
	nodeTimeout = 30 * time.Second
)

// nodeAnswer is the answer of the plugin on one node.
type nodeAnswer struct {
	Node   string          `json:"node"`
	Error  string          `json:"error,omitempty"` // why there is no answer
	Result json.RawMessage `json:"result,omitempty"`

	text     string // the output of jackfield
	exitedNo bool   // jackfield's exit status is 1
}

// queryNodes runs jackfield on the cluster's nodes in parallel. The answers are in the order of the nodes. If a node
// cannot be read, its answer has the reason.
func (c *client) queryNodes(ctx context.Context, command ...string) ([]nodeAnswer, error) {
	namespace, err := c.findNamespace(ctx)
	if err != nil {
		return nil, err
	}
	var nodes, pods struct{ Items []pod } // of a node, only the metadata is used
	if _, err := c.get(ctx, &nodes, "nodes", "--selector="+c.nodes); err != nil {
		return nil, err
	}
	if _, err := c.get(ctx, &pods, "pods", "--namespace="+namespace, "--selector="+c.selector); err != nil {
		return nil, err
	}
	onNode := map[string][]pod{}
	for i := range pods.Items {
		p := pods.Items[i]
		onNode[p.Spec.NodeName] = append(onNode[p.Spec.NodeName], p)
	}
	if len(nodes.Items) == 0 {
		return nil, &failure{text: "no node has the labels " + c.nodes, code: exitError, hint: "check --node-selector"}
	}
	answers := make([]nodeAnswer, len(nodes.Items))
	running := make(chan struct{}, maxRequests)
	var wg sync.WaitGroup
	for i := range answers {
		name := nodes.Items[i].Metadata.Name
		wg.Go(func() {
			running <- struct{}{}
			answers[i] = c.queryNode(ctx, name, onNode[name], command)
			<-running
		})
	}
	wg.Wait()
	return answers, ctx.Err()
}

// queryNode runs jackfield in the plugin's pod on one node. pods are the pods with the plugin's labels on the node.
func (c *client) queryNode(ctx context.Context, node string, pods []pod, command []string) nodeAnswer {
	plugin, other := choosePlugin(pods)
	if plugin == nil {
		return nodeAnswer{Node: node, Error: "no pod of Jackfield runs here" + other}
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var out, messages bytes.Buffer
	buffered := *c
	buffered.env.Stderr = &messages
	err := buffered.exec(ctx, plugin, nil, &out, command...)
	a := nodeAnswer{Node: node, text: out.String()}
	var f *failure
	// An exit status of jackfield has no text here, because jackfield has printed its own message. Status 1 is a
	// result, and any other status means that the node has no answer.
	switch {
	case err == nil:
	case ctx.Err() != nil:
		a.Error = fmt.Sprintf("pod %s did not answer within %v", plugin.title(), nodeTimeout)
	case errors.As(err, &f) && f.text == "" && f.code == exitNo:
		a.exitedNo = true
	case f != nil && f.text == "":
		a.Error = cmp.Or(strings.TrimPrefix(strings.TrimSpace(messages.String()), "jackfield: "),
			fmt.Sprintf("jackfield ends with exit status %d", f.code))
	default:
		a.Error = err.Error()
	}
	return a
}

// runOnAllNodes runs a command of jackfield on each node, for the pods of --namespace or of all namespaces, and prints
// the answers.
func (c *client) runOnAllNodes(ctx context.Context, name string) error {
	isText := c.output == "text" || c.output == "wide"
	args := []string{name, "--output=json"}
	if isText {
		args[1] = c.format()
	}
	if !c.allNamespaces {
		args = append(args, "--namespace="+c.namespace)
	}
	answers, err := c.queryNodes(ctx, args...)
	if err != nil {
		return err
	}
	unread, exitedNo, found := false, false, false
	var text strings.Builder
	for i := range answers {
		a := &answers[i]
		unread = unread || a.Error != ""
		exitedNo = exitedNo || a.exitedNo
		found = found || a.text != "" && !a.exitedNo
		switch {
		case a.Error != "":
			fmt.Fprintf(c.env.Stderr, "kubectl-jackfield: node %s: %s\n", plain(a.Node), plain(a.Error))
		case isText && a.text != "":
			fmt.Fprintf(&text, "Node %s\n\n%s\n", plain(a.Node), a.text)
		case !isText:
			if a.Result = json.RawMessage(a.text); !json.Valid(a.Result) {
				a.Error, a.Result, unread = "the answer is not JSON", nil, true
			}
		}
	}
	if !c.allNamespaces {
		// A node without pods of the namespace exits with 1. That is the result only if all nodes do.
		exitedNo = !found && !unread
	}
	if isText {
		_, err = io.WriteString(c.env.Stdout, text.String())
	} else {
		err = c.writeStructured(answers)
	}
	if err == nil && exitedNo && !c.allNamespaces {
		fmt.Fprintf(c.env.Stderr, "kubectl-jackfield: no node has an answer for namespace %s\n", plain(c.namespace))
	}
	return errors.Join(err, exitWith(exitedNo, unread))
}

// exitWith returns the exit status for several nodes: 1 for a negative result, or else 3 if a node could not be read.
func exitWith(exitedNo, unread bool) error {
	switch {
	case exitedNo:
		return &failure{code: exitNo}
	case unread:
		return &failure{code: exitError}
	}
	return nil
}

// daemonStatus is the part of `jackfield status -o json` that the table of nodes shows.
type daemonStatus struct {
	Version    string
	Registered bool
	Runtime    *struct{ Name, Version string }
	Remedy     string // while not registered, or with a runtime that is not supported
	Config     struct{ Error string }

	Containers, Missed, ReusedNumbers, RemovedDevices []json.RawMessage

	SocketsError string
	Vswitches    []struct {
		Name, Error        string
		Checked, Answering bool
		Missing            int
	}
}

// nodeHealth is a row of the table of nodes. Healthy is nil if it is unknown.
type nodeHealth struct {
	Node       string   `json:"node"`
	Version    string   `json:"version,omitempty"`
	Runtime    string   `json:"runtime,omitempty"` // name and version; "" while the plugin is not registered
	Containers int      `json:"containers"`
	Healthy    *bool    `json:"healthy"`
	Problems   []string `json:"problems"`
}

// showHealth prints the table of nodes. A node is healthy only if its plugin reports no problem.
func (c *client) showHealth(ctx context.Context) error {
	answers, err := c.queryNodes(ctx, "status", "--output=json")
	if err != nil {
		return err
	}
	hasProblem, unread := false, false
	rows := make([]nodeHealth, len(answers))
	for i := range answers {
		rows[i] = healthOf(&answers[i])
		unread = unread || rows[i].Healthy == nil
		hasProblem = hasProblem || rows[i].Healthy != nil && !*rows[i].Healthy
	}
	if c.output == "text" {
		err = writeHealth(c.env.Stdout, rows)
	} else {
		err = c.writeStructured(rows)
	}
	if hasProblem || unread {
		fmt.Fprintln(c.env.Stderr, "hint: `kubectl jackfield doctor --node NODE` finds the causes on a node")
	}
	return errors.Join(err, exitWith(hasProblem, unread))
}

// healthOf returns the row of one node.
func healthOf(a *nodeAnswer) nodeHealth {
	h := nodeHealth{Node: a.Node, Problems: []string{}}
	var s daemonStatus
	if a.Error == "" {
		if err := json.Unmarshal([]byte(a.text), &s); err != nil || s.Version == "" {
			a.Error = "the answer of the plugin is not a status"
		}
	}
	if a.Error != "" {
		h.Problems = append(h.Problems, a.Error)
		return h
	}
	h.Version, h.Containers = s.Version, len(s.Containers)
	if s.Registered && s.Runtime != nil {
		h.Runtime = strings.TrimSpace(s.Runtime.Name + " " + s.Runtime.Version)
	}
	unchecked := s.addProblems(&h)
	if a.exitedNo && len(h.Problems) == 0 {
		h.Problems = append(h.Problems, "`jackfield status` ends with exit status 1")
	}
	// A vswitch that is not checked yet leaves the health unknown, unless there is a problem anyway.
	healthy := len(h.Problems) == 0
	if unchecked == "" || !healthy {
		h.Healthy = &healthy
	}
	if unchecked != "" {
		h.Problems = append(h.Problems, unchecked)
	}
	return h
}

// addProblems adds the problems of a node to its row. unchecked reports a vswitch that the plugin has not checked yet.
func (s *daemonStatus) addProblems(h *nodeHealth) (unchecked string) {
	add := func(isProblem bool, format string, args ...any) {
		if isProblem {
			h.Problems = append(h.Problems, fmt.Sprintf(format, args...))
		}
	}
	add(!s.Registered, "not registered with a runtime: new containers start without devices and sockets")
	add(s.Registered && s.Remedy != "", "%s", s.Remedy)
	add(s.Config.Error != "", "rejects the newer configuration: %s", s.Config.Error)
	add(len(s.Missed) > 0, "%d running containers lack what they requested", len(s.Missed))
	add(len(s.ReusedNumbers) > 0, "%d device nodes of running containers lead to another device", len(s.ReusedNumbers))
	add(len(s.RemovedDevices) > 0, "%d device nodes of running containers lead to no device", len(s.RemovedDevices))
	add(s.SocketsError != "", "sockets are not known: %s", s.SocketsError)
	for _, v := range s.Vswitches {
		add(v.Checked && !v.Answering, "vswitch %s is unreachable: %s", v.Name, v.Error)
		add(v.Missing > 0, "vswitch %s lacks %d ports of running pods", v.Name, v.Missing)
		if !v.Checked {
			unchecked = "vswitch " + v.Name + " is not checked yet"
		}
	}
	return unchecked
}

// writeHealth writes the table of nodes, with one line per node.
func writeHealth(out io.Writer, rows []nodeHealth) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tVERSION\tRUNTIME\tCONTAINERS\tHEALTHY\tPROBLEMS")
	for _, h := range rows {
		containers, runtime, healthy := fmt.Sprint(h.Containers), cmp.Or(h.Runtime, "NOT REGISTERED"), "unknown"
		if h.Version == "" {
			containers, runtime = "-", "-"
		}
		if h.Healthy != nil {
			healthy = map[bool]string{true: "yes", false: "NO"}[*h.Healthy]
		}
		cells := []string{h.Node, cmp.Or(h.Version, "-"), runtime, containers, healthy,
			cmp.Or(strings.Join(h.Problems, "; "), "-")}
		for i := range cells {
			cells[i] = plain(strings.Join(strings.Fields(cells[i]), " "))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// writeStructured writes a value as JSON or YAML.
func (c *client) writeStructured(value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && c.output == "yaml" {
		// The decoder reads JSON as YAML in flow style. Without the style, the encoder writes block style.
		var node yaml.Node
		if err = yaml.Unmarshal(data, &node); err == nil {
			err = removeStyles(&node)
		}
		if err == nil {
			data, err = yaml.Marshal(&node)
		}
	}
	if err != nil {
		return &failure{text: "write the answers: " + err.Error(), code: exitError}
	}
	_, err = c.env.Stdout.Write(append(bytes.TrimSuffix(data, []byte("\n")), '\n'))
	return err
}

// removeStyles removes the flow style and the quotes of JSON from a tree. A string keeps quotes if a YAML parser would
// read it as another type without them.
func removeStyles(n *yaml.Node) error {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return n.Encode(n.Value)
	}
	for _, child := range n.Content {
		if err := removeStyles(child); err != nil {
			return err
		}
	}
	return nil
}
