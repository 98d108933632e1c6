// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/wording"
)

// Reason is why a device could not be found.
type Reason int

const (
	// NoSpec: no usable spec file declares the kind.
	NoSpec Reason = iota
	// NoDevice: the kind is there, the device is not.
	NoDevice
	// NoDevices: all devices of the kind were asked for, and none is usable.
	NoDevices
	// Refused: only files that are refused declare the device.
	Refused
)

// NotFoundError is a device, or a kind, that the snapshot does not hold. It
// unwraps to errdefs.ErrNotFound. Making one costs little; its text is worked out
// when it is asked for.
type NotFoundError struct {
	// Name is what was asked for: a qualified name or a kind.
	Name   string
	Kind   string
	Reason Reason

	device   string // "" when all were asked for
	short    bool
	snapshot *Snapshot
	once     sync.Once
	text     string
}

// Explanation is what there is to say about a device that was not found.
type Explanation struct {
	// Dirs are the directories searched, in rising priority, Missing those of them that
	// are not there, DirErrors what was wrong with some.
	Dirs      []string
	Missing   []string
	DirErrors []error
	// Mentions are the files that declare the kind, at most three; MentionCount
	// is how many there are.
	Mentions     []string
	MentionCount int
	// Failed are files that are refused, those that mention the kind first, at most
	// three; FailedCount is how many there are.
	Failed      []*SpecError
	FailedCount int
	// Conflicts are devices of the kind that several files of one directory declare,
	// where all devices were asked for and none is usable: at most three, by name;
	// ConflictCount is how many there are.
	Conflicts     []*ConflictError
	ConflictCount int
	// Nearest are existing names like the one asked for, nearest first, at most three.
	Nearest []string
}

// Shorten leaves what [NotFoundError.Explain] finds out of the text. It is for who
// reports many: a person reads a few, and each takes a look through all files.
func (e *NotFoundError) Shorten() { e.short = true }

// Error tells what is missing, where it was searched, what failed there and
// what to run. It looks through the snapshot the first time only: an error is printed
// for the log, the runtime and whoever wraps it.
func (e *NotFoundError) Error() string {
	e.once.Do(func() { e.text = e.message() })
	return e.text
}

// generator is the command that makes the spec file of a kind, "" for most.
func generator(kind string) string {
	if kind == "nvidia.com/gpu" {
		return "jackfield cdi generate nvidia"
	}
	return ""
}

func (e *NotFoundError) message() string {
	var x Explanation
	if !e.short {
		x = e.Explain()
	}
	var b strings.Builder
	kind := quoteName(e.Kind)
	fmt.Fprintf(&b, "resolve CDI device %s: ", quoteName(e.Name))
	switch e.Reason {
	case NoDevice:
		fmt.Fprintf(&b, "kind %s has no such device", kind)
	case NoDevices:
		fmt.Fprintf(&b, "kind %s has no usable device", kind)
	case Refused:
		b.WriteString("only refused spec files declare it")
	default:
		if x.MentionCount > 0 {
			fmt.Fprintf(&b, "every spec file for kind %s is refused", kind)
		} else {
			fmt.Fprintf(&b, "no spec file for kind %s", kind)
		}
	}
	for _, c := range x.Conflicts {
		fmt.Fprintf(&b, "; %s is declared at the same priority by %s: keep it in one of them", c.Name, listed(c.Files, len(c.Files)))
	}
	if more := x.ConflictCount - len(x.Conflicts); more > 0 {
		fmt.Fprintf(&b, " (and %d more)", more)
	}
	if len(x.Nearest) > 0 && len(x.Conflicts) == 0 {
		fmt.Fprintf(&b, "; nearest: %s", strings.Join(x.Nearest, ", "))
	}
	if len(x.Mentions) > 0 {
		fmt.Fprintf(&b, "; files of this kind: %s", listed(x.Mentions, x.MentionCount))
	}
	if len(x.Dirs) > 0 {
		b.WriteString("; searched: ")
		for i, dir := range x.Dirs {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(dir)
			if slices.Contains(x.Missing, dir) {
				b.WriteString(" (missing)")
			}
		}
	}
	for _, err := range x.DirErrors {
		fmt.Fprintf(&b, "; %v", err)
	}
	if len(x.Failed) > 0 {
		texts := make([]string, len(x.Failed))
		for i, f := range x.Failed {
			texts[i] = f.Error()
		}
		fmt.Fprintf(&b, "; refused files: %s", strings.Join(texts, "; "))
		if more := x.FailedCount - len(x.Failed); more > 0 {
			fmt.Fprintf(&b, " (and %d more)", more)
		}
	}
	if generate := generator(e.Kind); generate != "" && e.Reason == NoSpec && x.MentionCount == 0 {
		fmt.Fprintf(&b, "; run `%s` to make one of what the driver has", generate)
	}
	b.WriteString("; run `jackfield devices` to list what there is")
	there := slices.DeleteFunc(x.Dirs, func(dir string) bool { return slices.Contains(x.Missing, dir) })
	if len(there) > 0 {
		fmt.Fprintf(&b, " and `jackfield validate %s` to check the files", strings.Join(there, " "))
	}
	fmt.Fprintf(&b, ": %v", errdefs.ErrNotFound)
	return b.String()
}

// Unwrap is errdefs.ErrNotFound.
func (e *NotFoundError) Unwrap() error { return errdefs.ErrNotFound }

// ConflictError is a device that several files of one priority declare, so that
// none of them is usable (CDI: no file of a directory precedes another). It
// unwraps to errdefs.ErrConflict.
type ConflictError struct {
	// Name is the qualified name.
	Name string
	// Files declare it, sorted.
	Files []string
	// Shadowed tells that a directory of higher priority declares the device once,
	// so that it is usable all the same.
	Shadowed bool
}

// Error names the device and the files.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("resolve CDI device %q: declared at the same priority by %s; keep it in one of them: %v",
		e.Name, listed(e.Files, len(e.Files)), errdefs.ErrConflict)
}

// Unwrap is errdefs.ErrConflict.
func (e *ConflictError) Unwrap() error { return errdefs.ErrConflict }

// NameError is a name that is not a qualified CDI device name or a kind. It
// unwraps to errdefs.ErrInvalidArgument.
type NameError struct {
	Name string
	// Rule is what is asked for.
	Rule string
}

// Error names the name and the rule.
func (e *NameError) Error() string {
	return fmt.Sprintf("resolve CDI device %s: %s: %v", quoteName(e.Name), e.Rule, errdefs.ErrInvalidArgument)
}

// Unwrap is errdefs.ErrInvalidArgument.
func (e *NameError) Unwrap() error { return errdefs.ErrInvalidArgument }

// quoteName is a name that somebody asked for, which may be anything of any length.
func quoteName(name string) string { return wording.Quote(name, 256) }

func listed(paths []string, count int) string {
	if len(paths) > 3 {
		paths = paths[:3]
	}
	s := strings.Join(paths, ", ")
	if more := count - len(paths); more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}
