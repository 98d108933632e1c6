// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	old "go.podman.io/common/pkg/hooks/0.1.0"
	hooks "go.podman.io/common/pkg/hooks/1.0.0"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/source/hooksd/ocihook"
)

// MaxSize is the maximum size of a file in bytes.
const MaxSize = 256 << 10

// Hook is one hooks.d file. It must not be changed.
type Hook = ocihook.Hook

// Container holds the properties on which a hook's conditions depend.
type Container = ocihook.Container

// Parse parses a hooks.d file (oci-hooks(5)), schema 1.0.0 or 0.1.0. file is its path, for
// messages. The hook is nil if a diagnostic is not a warning. Parse does not access the host.
func Parse(data []byte, file string) (*Hook, diag.List) {
	f := parseFile(data, file)
	return f.hook, f.faults
}

// parseFile parses one file. A file with an error has no hook, and a file with warnings has one.
func parseFile(data []byte, file string) *hookFile {
	p := parser{file: file, data: data}
	h := p.parseHook()
	if len(p.found) > maxDiagnostics {
		p.found = p.found[:maxDiagnostics]
	}
	p.found.Sort()
	if p.failed {
		return &hookFile{faults: p.found}
	}
	return &hookFile{h, p.root.At("hook", "path"), p.found} // in the old schema, hook is the path
}

type parser struct {
	file   string
	data   []byte
	root   *jsontree.Node
	old    bool // schema 0.1.0
	failed bool
	found  diag.List
	// mistyped are the fields whose values have a wrong type. In the decoded hook they are zero.
	mistyped map[string]bool
}

// addError adds an error at a node, nil for the whole file.
func (p *parser) addError(at *jsontree.Node, field, found, rule string) *diag.Diagnostic {
	p.failed = true
	d := &diag.Diagnostic{File: p.file, Field: field, Found: found, Rule: rule}
	if at != nil {
		d.Line, d.Column = at.Line, at.Column
	}
	p.found = append(p.found, d)
	return d
}

func (p *parser) addWarning(line, column int, field, found, rule string) {
	p.found = append(p.found, &diag.Diagnostic{File: p.file, Line: line, Column: column, Field: field, Found: found,
		Rule: rule, Severity: diag.SeverityWarning})
}

// parseHook returns the hook, or nil. It checks the keys only after the types, so that a file that is not a hook file
// has one error.
func (p *parser) parseHook() *Hook {
	if len(p.data) > MaxSize {
		p.addError(nil, "", "", fmt.Sprintf("the file has %d bytes, more than the %d allowed: describe one hook "+
			"in each file", len(p.data), MaxSize))
		return nil
	}
	root, fault := jsontree.Parse(string(p.data))
	if fault != nil {
		fault.File, p.failed, p.found = p.file, true, append(p.found, fault)
		return nil
	}
	p.root = root
	raw := p.decodeHook()
	if raw == nil {
		return nil
	}
	p.checkKeys()
	return p.checkHook(raw)
}

// decodeHook passes the content to the reader of Podman and CRI-O for its version.
func (p *parser) decodeHook() *hooks.Hook {
	var version struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(p.data, &version); err != nil {
		return p.refuseDecoding(err)
	}
	read := hooks.Read
	switch version.Version {
	case hooks.Version:
	case "", old.Version:
		p.old, read = true, old.Read
	default:
		p.addError(p.root.At("version"), "version", diag.Quote(version.Version), `must be "1.0.0"`)
		return nil
	}
	raw, err := read(p.data)
	switch {
	case err != nil && version.Version == "":
		p.addError(p.root.At("version"), "version", "nothing",
			`want "version": "1.0.0"; without it the file has the old schema 0.1.0, whose parser says: `+err.Error())
	case err != nil:
		return p.refuseDecoding(err)
	default:
		return raw
	}
	return nil
}

// refuseDecoding adds an error of encoding/json, or of the reader of the old schema. Values of a
// wrong type must not hide other faults of the file, so it returns the hook without these values,
// or nil if the content is unreadable.
func (p *parser) refuseDecoding(err error) *hooks.Hook {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && !p.old && p.checkTypes():
		raw := &hooks.Hook{}
		_ = json.Unmarshal(p.data, raw) // it continues after a value of a wrong type
		return raw
	case errors.As(err, &wrong):
		var keys []any
		for key := range strings.SplitSeq(wrong.Field, ".") {
			keys = append(keys, key)
		}
		p.addError(p.root.At(keys...), wrong.Field, "a JSON "+wrong.Value, "must be "+jsonTypeName(wrong.Type.String()))
	default:
		p.addError(nil, "", "", err.Error())
	}
	return nil
}

// jsonTypeName returns the JSON type that decodes to a Go type.
func jsonTypeName(typ string) string {
	switch {
	case typ == "string":
		return "a string"
	case typ == "bool", typ == "*bool":
		return "true or false"
	case typ == "int":
		return "a whole number"
	case strings.HasPrefix(typ, "[]"):
		return "a list of strings"
	}
	return "an object"
}

// checkHook checks a hook that the reader accepted, and compiles the conditions.
func (p *parser) checkHook(raw *hooks.Hook) *Hook {
	h := &Hook{Name: path.Base(p.file), File: p.file, Path: raw.Hook.Path, Args: raw.Hook.Args, Env: raw.Hook.Env,
		Timeout: raw.Hook.Timeout}
	field, at := "hook.path", p.root.At("hook", "path")
	if p.old {
		field = "hook"
	}
	switch {
	case p.mistyped["hook"] || p.mistyped["hook.path"]:
	case raw.Hook.Path == "":
		p.addError(at, field, "", "missing: must be the host path of the hook's program")
	case !path.IsAbs(raw.Hook.Path):
		p.addError(at, field, diag.Quote(raw.Hook.Path), "must be an absolute host path")
	case path.Clean(raw.Hook.Path) != raw.Hook.Path || strings.IndexByte(raw.Hook.Path, 0) >= 0 || raw.Hook.Path == "/":
		p.addError(at, field, diag.Quote(raw.Hook.Path),
			"must be a path without //, /./, /../ and without / at the end; this is "+
				diag.Quote(path.Clean(raw.Hook.Path)))
	}
	if t := raw.Hook.Timeout; t != nil && *t <= 0 && !p.mistyped["hook.timeout"] {
		p.addError(p.root.At("hook", "timeout"), "hook.timeout", "",
			"must be a number of seconds greater than 0, or be omitted")
	}
	p.checkStages(h, raw.Stages)
	p.compile(h, &raw.When)
	if len(p.mistyped) == 0 { // otherwise a condition could only seem to be missing
		p.checkConditions(&h.When)
	}
	if p.failed {
		return nil
	}
	// The parser of Podman and CRI-O decides finally. It inspects the program below this process's
	// own root, which need not be the host's, and "/" exists below any root.
	backstop := *raw
	backstop.Hook.Path = "/"
	if err := backstop.Validate(nil); err != nil {
		p.addError(nil, "", "", err.Error())
	}
	return h
}

// checkStages checks the stages (oci-hooks(5)). A hook without a stage would never run.
func (p *parser) checkStages(h *Hook, stages []string) {
	at := p.root.At("stages")
	if p.mistyped["stages"] {
		return
	}
	if stages == nil {
		p.addError(at, "stages", "", "missing: must be a list of "+strings.Join(stageNames(), ", "))
		return
	}
	if len(stages) == 0 {
		p.addWarning(at.Line, at.Column, "stages", "an empty list", "the hook is never run")
	}
	for i, stage := range stages {
		switch {
		case p.mistyped[indexField("stages", i)]:
			continue
		case stage == "precreate":
			p.addError(p.root.At("stages", i), indexField("stages", i), diag.Quote(stage),
				"a stage that only Podman has; such a file belongs in a directory that only "+
					"Podman reads").Kind = ErrPodmanStage
			continue
		case !slices.Contains(stageNames(), stage):
			p.addError(p.root.At("stages", i), indexField("stages", i), diag.Quote(stage),
				"must be one of "+strings.Join(stageNames(), ", "))
			continue
		case stage == "prestart":
			stage = "createRuntime"
		}
		h.Stages = append(h.Stages, stage)
	}
}

func stageNames() []string {
	return []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
}

// compile compiles the conditions, and rejects invalid regular expressions.
func (p *parser) compile(h *Hook, w *hooks.When) {
	compile := func(at *jsontree.Node, field, text string) *regexp.Regexp {
		re, err := regexp.Compile(text)
		if err != nil {
			p.addError(at, field, diag.Quote(text), "not a regular expression: "+err.Error())
		}
		return re
	}
	annotations, commands, field := p.root.At("when", "annotations"), p.root.At("when", "commands"), "when.commands"
	if p.old {
		annotations, commands, field = p.root.At("annotations"), p.root.At("cmds"), "cmds"
	}
	h.When = ocihook.When{Or: p.old, Always: w.Always, HasBindMounts: w.HasBindMounts}
	for _, key := range slices.Sorted(maps.Keys(w.Annotations)) {
		at, name := annotations.Member(key), "when.annotations["+diag.Quote(key)+"]"
		if p.old {
			name = "annotations"
		}
		if at == nil {
			at = annotations
		}
		keyAt := &jsontree.Node{Line: at.KeyLine, Column: at.KeyColumn}
		h.When.Annotations = append(h.When.Annotations,
			ocihook.Annotation{Key: compile(keyAt, name, key), Value: compile(at, name, w.Annotations[key])})
	}
	for i, text := range w.Commands {
		h.When.Commands = append(h.When.Commands, compile(commands.At(i), indexField(field, i), text))
	}
}

func indexField(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// checkConditions warns of conditions that never match.
func (p *parser) checkConditions(w *ocihook.When) {
	never := func(at *jsontree.Node, field, found, rule string) {
		p.addWarning(at.Line, at.Column, field, found, "the hook is never run; "+rule)
	}
	switch {
	case w.Always == nil && w.HasBindMounts == nil && len(w.Annotations) == 0 && len(w.Commands) == 0:
		never(p.root.At("when"), "when", "no condition", "set always, annotations, commands or hasBindMounts")
	case w.Or:
	case w.Always != nil && !*w.Always:
		never(p.root.At("when", "always"), "when.always", "false", "leave it out")
	case w.HasBindMounts != nil && !*w.HasBindMounts:
		never(p.root.At("when", "hasBindMounts"), "when.hasBindMounts", "false", "leave it out")
	}
}

// checkKeys warns of unknown keys, which the parser of Podman and CRI-O ignores. A misspelt
// condition would have no effect.
func (p *parser) checkKeys() {
	if p.old {
		p.warnUnknown("", p.root, "version", "hook", "arguments", "stages", "stage", "cmds", "cmd", "annotations",
			"annotation", "hasbindmounts")
		return
	}
	p.warnUnknown("", p.root, "version", "hook", "when", "stages")
	p.warnUnknown("hook.", p.root.Member("hook"), "path", "args", "env", "timeout")
	p.warnUnknown("when.", p.root.Member("when"), "always", "annotations", "commands", "hasBindMounts")
}

// warnUnknown warns about unknown keys. Podman and CRI-O ignore them, and compare keys without regard to case.
func (p *parser) warnUnknown(prefix string, n *jsontree.Node, names ...string) {
	if n == nil || n.Kind != jsontree.Object {
		return
	}
	for _, child := range n.Children {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, child.Key) }) {
			p.addWarning(child.KeyLine, child.KeyColumn, prefix+diag.Quote(child.Key), "an unknown key",
				"it has no effect; the keys here are "+strings.Join(names, ", "))
		}
	}
}

// ErrPodmanStage is the Kind of a diagnostic about Podman's own stage precreate. A file with this
// stage is valid in a directory that only Podman reads.
var ErrPodmanStage = fmt.Errorf("stage of Podman: %w", errdefs.ErrInvalidArgument)

// maxDiagnostics bounds the diagnostics of one file.
const maxDiagnostics = 20
