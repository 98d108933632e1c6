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

	text string // Result, in the format of the command
	no   bool   // jackfield's exit status is 1
}

// askNodes runs jackfield on each node of the cluster at the same time. The answers are in the order of the nodes. A
// node that cannot be read has the reason in its answer.
func (c *client) askNodes(ctx context.Context, command ...string) ([]nodeAnswer, error) {
	namespace, err := c.findNamespace(ctx)
	if err != nil {
		return nil, err
	}
	var nodes, pods struct{ Items []pod }
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
	free := make(chan struct{}, maxRequests)
	var wg sync.WaitGroup
	for i := range answers {
		name := nodes.Items[i].Metadata.Name
		wg.Go(func() {
			free <- struct{}{}
			answers[i] = c.askNode(ctx, name, onNode[name], command)
			<-free
		})
	}
	wg.Wait()
	return answers, ctx.Err()
}

// askNode runs jackfield in the plugin's pod among the pods of one node.
func (c *client) askNode(ctx context.Context, node string, pods []pod, command []string) nodeAnswer {
	plugin, other := choosePlugin(pods)
	if plugin == nil {
		return nodeAnswer{Node: node, Error: "no pod of Jackfield runs here" + other}
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var out, messages bytes.Buffer
	quiet := *c
	quiet.env.Stderr = &messages
	err := quiet.exec(ctx, plugin, nil, &out, command...)
	a := nodeAnswer{Node: node, text: out.String()}
	var f *failure
	switch {
	case err == nil:
	case ctx.Err() != nil:
		a.Error = fmt.Sprintf("pod %s did not answer within %v", plugin.title(), nodeTimeout)
	case errors.As(err, &f) && f.text == "" && f.code == exitNo:
		a.no = true
	case f != nil && f.text == "":
		a.Error = cmp.Or(strings.TrimPrefix(strings.TrimSpace(messages.String()), "jackfield: "),
			fmt.Sprintf("jackfield ends with exit status %d", f.code))
	default:
		a.Error = err.Error()
	}
	return a
}

// everywhere runs a command of jackfield on each node, about the pods of all namespaces or of the one that the user
// names, and prints all answers.
func (c *client) everywhere(ctx context.Context, name string) error {
	isText := c.output == "text" || c.output == "wide"
	args := []string{name, "--output=json"}
	if isText {
		args[1] = c.format()
	}
	if !c.allNamespaces {
		args = append(args, "--namespace="+c.namespace)
	}
	answers, err := c.askNodes(ctx, args...)
	if err != nil {
		return err
	}
	unread, no, anything := false, false, false
	var text strings.Builder
	for i := range answers {
		a := &answers[i]
		unread = unread || a.Error != ""
		no = no || a.no
		anything = anything || a.text != "" && !a.no
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
		no = !anything && !unread // no other node has anything of the namespace
	}
	if isText {
		_, err = io.WriteString(c.env.Stdout, text.String())
	} else {
		err = c.writeStructured(answers)
	}
	if err == nil && no && !c.allNamespaces {
		fmt.Fprintf(c.env.Stderr, "kubectl-jackfield: no node has an answer for namespace %s\n", plain(c.namespace))
	}
	return errors.Join(err, exitWith(no, unread))
}

// exitWith returns the exit status of an answer from several nodes: "no" from one of them counts more than nodes that
// could not be read.
func exitWith(no, unread bool) error {
	switch {
	case no:
		return &failure{code: exitNo}
	case unread:
		return &failure{code: exitError}
	}
	return nil
}

// daemonStatus is the part of `jackfield status -o json` from which the fleet's table is made.
type daemonStatus struct {
	Version    string
	Registered bool
	Runtime    *struct{ Name, Version string }
	Remedy     string // while not registered, or with a runtime that is not supported
	Config     struct{ Error string }

	Containers, Missed, ReusedNumbers []json.RawMessage

	SocketsError string
	Vswitches    []struct {
		Name, Error        string
		Checked, Answering bool
		Missing            int
	}
}

// nodeHealth is a row of the fleet's table. Healthy is nil where it is not known.
type nodeHealth struct {
	Node       string   `json:"node"`
	Version    string   `json:"version,omitempty"`
	Runtime    string   `json:"runtime,omitempty"` // with which the plugin is registered now
	Containers int      `json:"containers"`
	Healthy    *bool    `json:"healthy"`
	Problems   []string `json:"problems"`
}

// fleet prints one row a node. Only a node whose plugin reports that all is well is healthy.
func (c *client) fleet(ctx context.Context) error {
	answers, err := c.askNodes(ctx, "status", "--output=json")
	if err != nil {
		return err
	}
	no, unread := false, false
	rows := make([]nodeHealth, len(answers))
	for i := range answers {
		rows[i] = healthOf(&answers[i])
		unread = unread || rows[i].Healthy == nil
		no = no || rows[i].Healthy != nil && !*rows[i].Healthy
	}
	if c.output == "text" {
		err = writeFleet(c.env.Stdout, rows)
	} else {
		err = c.writeStructured(rows)
	}
	if no || unread {
		fmt.Fprintln(c.env.Stderr, "hint: `kubectl jackfield doctor --node NODE` finds the causes on a node")
	}
	return errors.Join(err, exitWith(no, unread))
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
	unchecked := s.problems(&h)
	if a.no && len(h.Problems) == 0 {
		h.Problems = append(h.Problems, "`jackfield status` ends with exit status 1")
	}
	healthy := len(h.Problems) == 0
	if unchecked == "" || !healthy {
		h.Healthy = &healthy
	}
	if unchecked != "" {
		h.Problems = append(h.Problems, unchecked)
	}
	return h
}

// problems adds the problems of a node to its row. unchecked is the part that the plugin does not know yet.
func (s *daemonStatus) problems(h *nodeHealth) (unchecked string) {
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

// writeFleet writes the fleet's table. Texts of nodes are in one line.
func writeFleet(out io.Writer, rows []nodeHealth) error {
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
		// JSON is YAML. Without its styles, the encoder writes blocks.
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

// removeStyles removes the styles of JSON. Strings have quotes where any parser needs them.
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
