// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"

	old "go.podman.io/common/pkg/hooks/0.1.0"
	hooks "go.podman.io/common/pkg/hooks/1.0.0"

	"github.com/jackfield/jackfield/pkg/hooksd/ocihook"
)

// MaxSize is the largest file that is read, in bytes.
const MaxSize = 256 << 10

// Parse reads the content of a file, oci-hooks(5), schema 1.0.0 or 0.1.0. The name
// file is its path, for messages. The hook is nil when there is a problem that
// is not a warning. Nothing is looked at on the host.
func Parse(data []byte, file string) (*Hook, []*Problem) {
	p := parser{file: file, data: data}
	raw := p.read()
	var h *Hook
	if raw != nil {
		h = p.hook(raw)
	}
	if len(p.problems) > maxProblems {
		p.problems = p.problems[:maxProblems]
	}
	if p.failed {
		h = nil
	}
	sortProblems(p.problems)
	return h, p.problems
}

type parser struct {
	file     string
	data     []byte
	old      bool // schema 0.1.0
	failed   bool
	problems []*Problem
}

func (p *parser) refuse(field, found, rule string) {
	p.failed = true
	p.problems = append(p.problems, &Problem{File: p.file, Field: field, Found: found, Rule: rule})
}

func (p *parser) warn(field, found, rule string) {
	p.problems = append(p.problems, &Problem{File: p.file, Field: field, Found: found, Rule: rule, Warning: true})
}

// read hands the content to the real parser's reader of its version, and says
// where in the file what fails stands.
func (p *parser) read() *hooks.Hook {
	if len(p.data) > MaxSize {
		p.refuse("", "", "the file is larger than any hook's")
		return nil
	}
	var version struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(p.data, &version); err != nil {
		p.json(err)
		return nil
	}
	read := hooks.Read
	switch version.Version {
	case hooks.Version:
	case "", old.Version:
		p.old, read = true, old.Read
	default:
		p.refuse("version", quote(version.Version), `want "1.0.0"`)
		return nil
	}
	raw, err := read(p.data)
	if err != nil {
		if version.Version == "" {
			p.refuse("version", "nothing", `want "version": "1.0.0"; without it the file is read by the old schema 0.1.0, which says: `+err.Error())
			return nil
		}
		p.json(err)
		return nil
	}
	p.keys()
	return raw
}

// json is an error of encoding/json, or of the old reader.
func (p *parser) json(err error) {
	problem := &Problem{File: p.file, Rule: err.Error()}
	var (
		syntax *json.SyntaxError
		typ    *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &syntax):
		problem.Line, problem.Column = position(p.data, syntax.Offset)
		problem.Rule = "not JSON: " + syntax.Error()
	case errors.As(err, &typ):
		problem.Line, problem.Column = position(p.data, typ.Offset)
		problem.Field, problem.Found, problem.Rule = typ.Field, "a JSON "+typ.Value, "want "+wanted(typ.Type.String())
	}
	p.failed = true
	p.problems = append(p.problems, problem)
}

// wanted is a Go type in the terms of JSON.
func wanted(typ string) string {
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

// position is the line and column of the byte before offset, which is where the
// decoder stopped.
func position(data []byte, offset int64) (line, column int) {
	before := data[:max(0, min(int(offset)-1, len(data)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// hook checks what the real parser let through to here, and compiles it.
func (p *parser) hook(raw *hooks.Hook) *Hook {
	h := &Hook{Name: path.Base(p.file), File: p.file, Path: raw.Hook.Path, Args: raw.Hook.Args, Env: raw.Hook.Env, Timeout: raw.Hook.Timeout}
	field := "hook.path"
	if p.old {
		field = "hook"
	}
	switch {
	case raw.Hook.Path == "":
		p.refuse(field, "", "missing; want the host path of the hook's program")
	case !path.IsAbs(raw.Hook.Path):
		p.refuse(field, quote(raw.Hook.Path), "want an absolute host path")
	case path.Clean(raw.Hook.Path) != raw.Hook.Path || strings.IndexByte(raw.Hook.Path, 0) >= 0 || raw.Hook.Path == "/":
		p.refuse(field, quote(raw.Hook.Path), "want a path without //, /./, /../ and without / at the end; this is "+quote(path.Clean(raw.Hook.Path)))
	}
	if t := raw.Hook.Timeout; t != nil && *t <= 0 {
		p.refuse("hook.timeout", "", "want seconds, more than 0, or leave it out")
	}
	p.stages(h, raw.Stages)
	var problems []*Problem
	h.When, problems = compile(&raw.When, p.old)
	for _, problem := range problems {
		p.refuse(problem.Field, problem.Found, problem.Rule)
	}
	p.conditions(&h.When)
	if p.failed {
		return nil
	}
	// The real parser has the last word. Its look at the program is at this
	// process' own root, which need not be the host's: "/" is there at any.
	backstop := *raw
	backstop.Hook.Path = "/"
	if err := backstop.Validate(nil); err != nil {
		p.refuse("", "", err.Error())
	}
	return h
}

func (p *parser) stages(h *Hook, stages []string) {
	if stages == nil {
		p.refuse("stages", "", "missing; want a list of "+strings.Join(stageNames(), ", "))
		return
	}
	if len(stages) == 0 {
		p.warn("stages", "an empty list", "the hook is never run")
	}
	for i, stage := range stages {
		switch {
		case stage == "precreate":
			p.refuse(index("stages", i), quote(stage), "a stage of Podman alone, where the runtime is not asked; such a file belongs in a directory that only Podman reads")
			p.problems[len(p.problems)-1].Elsewhere = true
			continue
		case !slices.Contains(stageNames(), stage):
			p.refuse(index("stages", i), quote(stage), "want one of "+strings.Join(stageNames(), ", "))
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

// conditions warns of those that never match.
func (p *parser) conditions(w *ocihook.When) {
	switch {
	case w.Always == nil && w.HasBindMounts == nil && len(w.Annotations) == 0 && len(w.Commands) == 0:
		p.warn("when", "no condition", "the hook is never run; want one of always, annotations, commands, hasBindMounts")
	case w.Or:
	case w.Always != nil && !*w.Always:
		p.warn("when.always", "false", "the hook is never run; leave it out")
	case w.HasBindMounts != nil && !*w.HasBindMounts:
		p.warn("when.hasBindMounts", "false", "the hook is never run; leave it out")
	}
}

// keys warns of those that the real parser passes over: a condition with a slip
// of the pen in its name is no condition.
func (p *parser) keys() {
	if p.old {
		p.known("", p.data, "version", "hook", "arguments", "stages", "stage", "cmds", "cmd", "annotations", "annotation", "hasbindmounts")
		return
	}
	members := p.known("", p.data, "version", "hook", "when", "stages")
	p.known("hook", members["hook"], "path", "args", "env", "timeout")
	p.known("when", members["when"], "always", "annotations", "commands", "hasBindMounts")
}

// known warns of members of an object other than these, and returns them by
// name. Names are compared as encoding/json compares them.
func (p *parser) known(field string, data []byte, names ...string) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if len(data) == 0 || json.Unmarshal(data, &members) != nil {
		return nil
	}
	out := make(map[string]json.RawMessage, len(members))
	for key, value := range members {
		i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, key) })
		if i < 0 {
			at := quote(key)
			if field != "" {
				at = field + "." + at
			}
			p.warn(at, "an unknown key", "it is passed over; the keys here are "+strings.Join(names, ", "))
			continue
		}
		out[names[i]] = value
	}
	return out
}
