// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackfield/jackfield/internal/config/policy"
)

// Error is why a container's plan could not be made: every request that failed,
// in order. It unwraps to each of their errors.
type Error struct {
	Container string // namespace/pod/container
	Errs      []error
	Items     []Item // none where the requests could not be read
}

// MaxExplanations is the number of refusals of a container that name the closest rule and a remedy.
const MaxExplanations = 16

// Error lists the first 16 errors and the number of the others, because the text becomes the status
// of a pod.
func (e *Error) Error() string {
	const listed = MaxExplanations
	var b strings.Builder
	if e.Container != "" {
		fmt.Fprintf(&b, "container %q: ", e.Container)
	}
	if len(e.Errs) == 1 {
		b.WriteString(e.Errs[0].Error())
		return b.String()
	}
	fmt.Fprintf(&b, "%d problems:", len(e.Errs))
	for i, err := range e.Errs[:min(len(e.Errs), listed)] {
		fmt.Fprintf(&b, " (%d) %v", i+1, err)
	}
	if more := len(e.Errs) - listed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Unwrap returns the errors one by one.
func (e *Error) Unwrap() []error { return e.Errs }

// RequestError is an error of one request, with the place of the fault. Every part but Err can be
// empty.
type RequestError struct {
	Annotation  string // key
	Position    int    // of the item in the annotation, from 1
	Request     string // see Item.Request
	Explanation string // the circumstances
	File, Field string
	Err         error
	Hint        string // further advice
}

// Error joins the parts.
func (e *RequestError) Error() string {
	text := e.Place() + e.Err.Error()
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Place returns the parts before Err, each with ": " behind it.
func (e *RequestError) Place() string {
	annotation := ""
	if e.Annotation != "" {
		annotation = "annotation " + e.Annotation
		if e.Position > 0 {
			annotation += fmt.Sprintf(", item %d", e.Position)
		}
	}
	place := ""
	for _, part := range []string{annotation, e.Request, e.File, e.Field, e.Explanation} {
		if part != "" {
			place += part + ": "
		}
	}
	return place
}

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// inAnnotation returns err as the error of an annotation's item, or nil.
func inAnnotation(key string, position int, err error) error {
	if err == nil {
		return nil
	}
	return &RequestError{Annotation: key, Position: position, Err: err}
}

// UnmanagedError is why a discovered attachment is unmanaged.
type UnmanagedError struct {
	Reason string
	// Refusal has the lines of configuration with which the attachment would be delivered. Only
	// audit mode sets it, which reports every rule that mode enforce needs.
	Refusal *policy.RefusedError
}

// Error implements error.
func (e *UnmanagedError) Error() string {
	if e.Refusal == nil {
		return e.Reason
	}
	return e.Why() + "; to deliver it, " + e.Refusal.Remedy()
}

// Why returns the text without the remedy.
func (e *UnmanagedError) Why() string {
	if e.Refusal == nil {
		return e.Reason
	}
	return e.Reason + ", and audit mode delivers nothing that was not asked for"
}

// isRefusal reports whether policy, and nothing else, is the obstacle.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*policy.RefusedError](err)
	return ok
}
