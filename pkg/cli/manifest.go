// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Limits on a manifest. The size is what the API server takes, and more.
const (
	maxManifest  = 4 << 20 // bytes
	maxDocuments = 1024    // YAML documents in it
	maxPods      = 4096    // pods and pod templates in it
)

// manifests are the files that a command reads pods from, and the namespace of pods that name none.
type manifests struct {
	files     []string // -f, --pod and the arguments
	pods      []string // --pod
	namespace string
}

// podFlags adds the flags that name manifests. Commands with them take file arguments as well.
func (m *manifests) podFlags(cmd *cobra.Command) {
	const use = "`file` with pods or workloads, - for standard input; may be repeated"
	cmd.Flags().StringArrayVarP(&m.files, "filename", "f", nil, use)
	cmd.Flags().StringArrayVar(&m.pods, "pod", nil, "the same as -f")
}

// check takes the file arguments, and refuses an empty name and standard input named twice.
func (m *manifests) check(cmd *cobra.Command, args []string) error {
	m.files = slices.Concat(m.files, m.pods, args)
	streams := 0
	for _, file := range m.files {
		if file == "" {
			return usagef(cmd, "a manifest's file name is empty")
		}
		if file == "-" {
			streams++
		}
	}
	if streams > 1 {
		return usagef(cmd, "standard input (-) is named %d times", streams)
	}
	return nil
}

// read returns the pods of all files. Notes about them go to standard error.
func (m *manifests) read(cmd *cobra.Command, env Env) ([]*pod, error) {
	var all []*pod
	for _, file := range m.files {
		pods, err := readPods(file, env.Stdin)
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			switch {
			case m.namespace == "" && p.Metadata.Namespace == "":
				env.say(`note: %s names no namespace: "default" is assumed (-n says another)`, p.title())
				p.Metadata.Namespace = "default"
			case p.Metadata.Namespace == "":
				p.Metadata.Namespace = m.namespace
			case m.namespace != "" && m.namespace != p.Metadata.Namespace:
				return nil, usagef(cmd, "--namespace: found %q, but %s in %q names the namespace %q", m.namespace, p.title(), file, p.Metadata.Namespace)
			}
		}
		all = append(all, pods...)
	}
	return all, nil
}

// readManifest reads a file of the caller's own, or standard input for "-".
func readManifest(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return hostfs.ReadAtMost(stdin, maxManifest)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	return hostfs.ReadAtMost(f, maxManifest)
}

// readPods reads a manifest from a file, or from standard input for "-".
func readPods(file string, stdin io.Reader) ([]*pod, error) {
	data, err := readManifest(file, stdin)
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w", file, err)
	}
	return parsePods(file, data)
}

// object is what all Kubernetes objects with pods in them have, wherever they have them.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Namespace    string            `json:"namespace"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Items    []json.RawMessage `json:"items"`    // of a list
	Template json.RawMessage   `json:"template"` // of a PodTemplate
	Spec     struct {
		Template    json.RawMessage `json:"template"` // of most workloads
		JobTemplate struct {
			Spec struct {
				Template json.RawMessage `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"` // of a CronJob
	} `json:"spec"`
}

// podTemplate is the object's pod template, nil where it has none.
func (o *object) podTemplate() json.RawMessage {
	for _, t := range []json.RawMessage{o.Spec.Template, o.Spec.JobTemplate.Spec.Template, o.Template} {
		if len(t) > 0 && !bytes.Equal(t, []byte("null")) {
			return t
		}
	}
	return nil
}

// workloads are the kinds that must have a pod template. Objects of other kinds are taken as workloads if they have one.
var workloads = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "PodTemplate"}

// parsePods returns the pods and pod templates of a manifest in the file's order; file is its name for messages.
// Objects without pods, such as Services, are passed over.
func parsePods(file string, data []byte) ([]*pod, error) {
	fail := func(format string, args ...any) ([]*pod, error) {
		return nil, fmt.Errorf("read manifest %q: "+format+": %w", append(append([]any{file}, args...), errdefs.ErrInvalidArgument)...)
	}
	docs := splitDocuments(data)
	switch {
	case len(docs) == 0:
		return fail("the file is empty: want a Pod or a workload")
	case len(docs) > maxDocuments:
		return fail("it holds more than %d documents", maxDocuments)
	}
	r := manifestReader{}
	for _, doc := range docs {
		text, err := yaml.YAMLToJSON(doc.text)
		if err != nil {
			// Once more with the lines before the document, so that the message has the file's line.
			_, err = yaml.YAMLToJSON(append(bytes.Repeat([]byte("\n"), doc.line), doc.text...))
			return fail("%w", err)
		}
		if err := r.object(text, ""); err != nil {
			return fail("%w", err)
		}
	}
	if len(r.pods) == 0 {
		found := make([]string, len(r.others))
		for i, kind := range r.others {
			found[i] = quoted(kind)
		}
		return fail("it holds no pod: kind: found %s, want a Pod, a workload with a pod template (%s) or a List of them", strings.Join(found, ", "), strings.Join(workloads, ", "))
	}
	return r.pods, nil
}

// document is one YAML document, and how many lines of the file are before it.
type document struct {
	text []byte
	line int
}

// splitDocuments splits YAML at the lines that begin a document ("---"), which cannot be part of a value. Documents
// with nothing but comments are left out.
func splitDocuments(data []byte) []document {
	var docs []document
	begin, line, at := 0, 0, 0
	end := func(to int) {
		if text := data[begin:to]; !blank(text) {
			docs = append(docs, document{text, at})
		}
	}
	for pos := 0; pos < len(data); line++ {
		next := len(data)
		if n := bytes.IndexByte(data[pos:], '\n'); n >= 0 {
			next = pos + n + 1
		}
		if rest, ok := bytes.CutPrefix(data[pos:next], []byte("---")); ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			end(pos)
			begin, at = pos, line
		}
		pos = next
	}
	end(len(data))
	return docs
}

// blank reports whether a document has only comments and the lines that begin and end it.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimPrefix(line, utf8BOM), []byte("---")))
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("...")) {
			return false
		}
	}
	return true
}

// manifestReader collects the pods of the objects of a manifest.
type manifestReader struct {
	pods   []*pod
	others []string // kinds without pods, each once
}

// object adds the pods of one object. parent is the kind of the list it is in, "" for none.
func (r *manifestReader) object(data json.RawMessage, parent string) error {
	var o object
	err := json.Unmarshal(data, &o)
	isWorkload := slices.Contains(workloads, o.Kind)
	template := o.podTemplate()
	switch {
	case err != nil && (o.Kind == "" || o.Kind == "Pod" || o.Kind == "List" || isWorkload):
		return err
	case o.Kind == "Pod":
		return r.pod(data, &o)
	case isWorkload && template == nil:
		return fmt.Errorf("%s %s: spec.template is missing", o.Kind, quoted(o.Metadata.Name))
	case isWorkload || hasContainers(template):
		return r.pod(template, &o)
	case parent == "" && strings.HasSuffix(o.Kind, "List"):
		itemKind := strings.TrimSuffix(o.Kind, "List") // the items of a typed list need not name their kind
		for _, item := range o.Items {
			if itemKind != "" {
				item = withKind(item, itemKind)
			}
			if err := r.object(item, o.Kind); err != nil {
				return err
			}
		}
	}
	if !slices.Contains(r.others, o.Kind) && len(r.others) < 8 {
		r.others = append(r.others, o.Kind)
	}
	return nil
}

// hasContainers tells a pod template from a template of something else.
func hasContainers(template json.RawMessage) bool {
	var t struct {
		Spec struct {
			Containers []json.RawMessage `json:"containers"`
		} `json:"spec"`
	}
	return json.Unmarshal(template, &t) == nil && len(t.Spec.Containers) > 0
}

// withKind is an item of a typed list with its kind, where it has none of its own.
func withKind(item json.RawMessage, kind string) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(item, &o) != nil || o == nil || o["kind"] != nil {
		return item
	}
	o["kind"], _ = json.Marshal(kind)
	item, _ = json.Marshal(o)
	return item
}

// pod adds a Pod, or the pod template of a workload.
func (r *manifestReader) pod(data json.RawMessage, o *object) error {
	p := &pod{}
	if err := json.Unmarshal(data, p); err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, quoted(o.Metadata.Name), err)
	}
	p.Kind = o.Kind
	if p.Metadata.Name = o.Metadata.Name; p.Metadata.Name == "" {
		p.Metadata.Name = o.Metadata.GenerateName
	}
	p.Metadata.Namespace = o.Metadata.Namespace
	if o.Kind != "Pod" {
		p.workloadAnnotations = o.Metadata.Annotations
	}
	if len(p.Spec.Containers) == 0 {
		return fmt.Errorf("%s %s: spec.containers: want at least one", o.Kind, quoted(p.Metadata.Name))
	}
	if len(r.pods) >= maxPods {
		return fmt.Errorf("it holds more than %d pods", maxPods)
	}
	r.pods = append(r.pods, p)
	return nil
}
