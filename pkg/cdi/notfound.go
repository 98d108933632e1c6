// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

const (
	// maxListed bounds each list in an error.
	maxListed = 3
	// maxComparedNames bounds the names that are compared with the requested name: a container can request many missing
	// devices, and a node can have many devices.
	maxComparedNames = 1 << 13
)

// Reason is the reason why a device could not be found.
type Reason int

const (
	// NoSpec: no usable spec file declares the kind.
	NoSpec Reason = iota
	// NoDevice: the kind exists, the device does not.
	NoDevice
	// NoDevices: all devices of the kind were requested, and none is usable.
	NoDevices
	// Refused: only refused files declare the device.
	Refused
)

// NotFoundError is a device, or a kind, that no usable spec file declares. It unwraps to errdefs.ErrNotFound.
type NotFoundError struct {
	// Name is the requested qualified name or kind.
	Name   string
	Kind   string
	Reason Reason
	// Remedies end the text. A program sets them to commands that its users can run; the package sets none.
	Remedies []string

	device   string // "" for all devices of the kind
	short    bool
	snapshot *Snapshot
}

// Explanation has the facts that help with a device that was not found.
type Explanation struct {
	// Dirs are the directories searched, in rising priority.
	Dirs []Dir
	// Mentions are the files that declare the kind.
	Mentions []string
	// Failed are the refused files. Files of the kind come first.
	Failed []*SpecError
	// Ignored are the files of the kind that are not read, because of the extension of their names.
	Ignored []IgnoredFile
	// Conflicts are the devices of the kind that several files of one directory declare. It is set for Reason
	// NoDevices.
	Conflicts []*ConflictError
	// Nearest are existing names similar to the requested name, nearest first, at most three.
	Nearest []string
}

// Shorten omits the facts of [NotFoundError.Explain] from the text. It is for callers that report many devices, because
// each explanation searches all files.
func (e *NotFoundError) Shorten() { e.short = true }

// Dirs returns the directories searched, in rising priority.
func (e *NotFoundError) Dirs() []Dir { return e.snapshot.Dirs() }

// Error names the device, the directories searched and the refused files.
func (e *NotFoundError) Error() string {
	problem, details := e.Parts()
	return strings.Join(append([]string{"resolve CDI device " + diag.Quote(e.Name) + ": " + problem}, details...), "; ")
}

// Unwrap returns errdefs.ErrNotFound.
func (e *NotFoundError) Unwrap() error { return errdefs.ErrNotFound }

// Explain searches the snapshot for facts that help. Its time grows with the number of files and devices.
func (e *NotFoundError) Explain() Explanation {
	x := Explanation{Dirs: e.snapshot.Dirs(), Nearest: e.findNearest()}
	var others []*SpecError
	for _, f := range e.snapshot.files {
		if f.kind == e.Kind {
			x.Mentions = append(x.Mentions, f.hostPath())
		}
		switch {
		case f.err == nil:
		case f.kind == e.Kind:
			x.Failed = append(x.Failed, f.err)
		default:
			others = append(others, f.err)
		}
	}
	x.Failed = append(x.Failed, others...)
	x.Ignored = slices.DeleteFunc(e.snapshot.Ignored(), func(f IgnoredFile) bool { return f.Kind != e.Kind })
	if e.Reason == NoDevices {
		_, x.Conflicts = e.snapshot.devicesOf(e.Kind)
	}
	return x
}

// findNearest returns qualified names of the kind, or of other kinds, that are similar to the requested name.
func (e *NotFoundError) findNearest() []string {
	var names []string
	kinds := map[string]bool{}
	for _, d := range e.snapshot.devices {
		kinds[d.file.kind] = true
		if d.file.kind == e.Kind && len(names) < maxComparedNames {
			names = append(names, d.name)
		}
	}
	if kinds[e.Kind] {
		return diag.NearestFew(e.Kind+"="+e.device, maxListed, slices.Values(names))
	}
	near := diag.NearestFew(e.Kind, maxListed, maps.Keys(kinds))
	for i, kind := range near {
		if name := kind + "=" + e.device; len(e.snapshot.findDeclarations(name)) > 0 {
			near[i] = name
		}
	}
	return near
}

// Parts returns the problem, and details that help: similar names, the directories searched, refused files, and
// Remedies.
func (e *NotFoundError) Parts() (problem string, details []string) {
	var x Explanation
	if !e.short {
		x = e.Explain()
	}
	kind := diag.Quote(e.Kind)
	// The reason, or for NoSpec whether files of the kind exist that are refused.
	switch {
	case e.Reason == NoDevice:
		problem = "kind " + kind + " has no such device"
	case e.Reason == NoDevices:
		problem = "kind " + kind + " has no usable device"
	case e.Reason == Refused:
		problem = "only refused spec files declare it"
	case len(x.Mentions) > 0:
		problem = "every spec file for kind " + kind + " is refused"
	default:
		problem = "no spec file for kind " + kind
	}
	add := func(format string, args ...any) { details = append(details, fmt.Sprintf(format, args...)) }
	details = append(details, textsOfSome(x.Conflicts, func(c *ConflictError) string {
		return c.Name + " is declared at the same priority by " + joinSome(c.Files) + ": keep it in one of them"
	})...)
	if len(x.Nearest) > 0 && len(x.Conflicts) == 0 {
		add("nearest: %s", strings.Join(x.Nearest, ", "))
	}
	if len(x.Mentions) > 0 {
		add("files of this kind: %s", joinSome(x.Mentions))
	}
	details = append(details, textsOfSome(x.Ignored, func(f IgnoredFile) string { return f.String() })...)
	var searched []string
	for _, dir := range x.Dirs {
		if dir.Missing {
			searched = append(searched, dir.Path+" (missing)")
			continue
		}
		searched = append(searched, dir.Path)
	}
	if len(searched) > 0 {
		add("searched: %s", strings.Join(searched, ", "))
	}
	for _, dir := range x.Dirs {
		if dir.Err != nil {
			add("%s", diag.ErrorText(dir.Err))
		}
	}
	if refused := textsOfSome(x.Failed, (*SpecError).Error); len(refused) > 0 {
		add("refused files: %s", refused[0])
		details = append(details, refused[1:]...)
	}
	return problem, append(details, e.Remedies...)
}
