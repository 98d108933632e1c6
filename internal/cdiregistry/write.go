// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// WriteSpec validates a spec, writes it into dir and returns the file's host path. It creates dir
// where it is missing. The file appears whole or not at all, replaces one of the same name, and
// has mode 0644. The name's extension, .json or .yaml, selects the syntax; without one, ".json"
// is appended.
func WriteSpec(host hostfs.Root, dir, name string, spec *specs.Spec) (string, error) {
	name, err := specFileName(name)
	if err != nil {
		return "", fmt.Errorf("write CDI spec %q: %w", name, err)
	}
	file := path.Join(dir, name)
	text, err := encode(spec, path.Ext(name))
	if err != nil {
		return "", fmt.Errorf("write CDI spec %q: %w", file, err)
	}
	if diags := Validate(text); len(diags) > 0 {
		return "", fmt.Errorf("write CDI spec %q: %w", file, &SpecError{Path: file, Diagnostics: diags})
	}
	if err := host.Replace(file, text, hostfs.Own(0o644)); err != nil {
		return "", fmt.Errorf("write CDI spec %q: %w", file, err)
	}
	return file, nil
}

// RemoveSpec removes a spec file that WriteSpec wrote. A missing file is no error.
func RemoveSpec(host hostfs.Root, dir, name string) error {
	name, err := specFileName(name)
	if err != nil {
		return fmt.Errorf("remove CDI spec %q: %w", name, err)
	}
	return removeFile(host, path.Join(dir, name))
}

func specFileName(name string) (string, error) {
	if ext := path.Ext(name); ext != ".json" && ext != ".yaml" {
		name += ".json"
	}
	// The temporary name is longer.
	if strings.ContainsAny(name, "/\x00") || len(name) > unix.NAME_MAX-32 {
		return name, fmt.Errorf("the name must be a file name of at most %d bytes: %w", unix.NAME_MAX-32, errdefs.ErrInvalidArgument)
	}
	return name, nil
}

func encode(spec *specs.Spec, ext string) ([]byte, error) {
	if spec == nil {
		return nil, fmt.Errorf("the spec is nil: %w", errdefs.ErrInvalidArgument)
	}
	if ext == ".yaml" {
		return yaml.Marshal(spec)
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	return append(text, '\n'), err
}

// TransientName returns the name, without extension, of a spec file that lives as long as its
// owner of the given ID: "vendor.com-class_id", as in the CDI libraries.
func TransientName(kind, id string) (string, error) {
	if err := checkKind(kind); err != nil {
		return "", fmt.Errorf("name transient CDI spec of kind %q: %w: %w", kind, err, errdefs.ErrInvalidArgument)
	}
	if id == "" || strings.IndexByte(id, 0) >= 0 {
		return "", fmt.Errorf("name transient CDI spec of kind %q: the ID %q is empty or has a NUL: %w", kind, id, errdefs.ErrInvalidArgument)
	}
	return transientPrefix(kind) + strings.ReplaceAll(id, "/", "_"), nil
}

func transientPrefix(kind string) string { return strings.Replace(kind, "/", "-", 1) + "_" }

// Transient is a spec file whose name says that it lives as long as its owner.
type Transient struct {
	File File
	// ID is the owner's, with "_" for each "/" in it.
	ID string
}

// Transients returns the spec files of all directories that have a name of TransientName, in the
// order of Files. Refused files are among them where their kind could be read.
func (s *Snapshot) Transients() []Transient {
	var out []Transient
	for _, f := range s.Files() {
		base := path.Base(f.Path)
		id, ok := strings.CutPrefix(strings.TrimSuffix(base, path.Ext(base)), transientPrefix(f.Kind))
		if ok && f.Kind != "" && id != "" {
			out = append(out, Transient{File: f, ID: id})
		}
	}
	return out
}

// RemoveTransients removes transient specs, whose owners no longer exist, and returns their paths.
// It keeps a file that was written after it was listed, since another owner needs it. It goes on
// after an error and joins the errors.
func RemoveTransients(host hostfs.Root, list []Transient) ([]string, error) {
	var removed []string
	var errs []error
	for _, t := range list {
		if t.wasRewritten(host) {
			continue
		}
		if err := removeFile(host, t.File.Path); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, t.File.Path)
	}
	return slices.Clip(removed), errors.Join(errs...)
}

// wasRewritten reports whether the file was written after it was listed.
func (t *Transient) wasRewritten(host hostfs.Root) bool {
	st, err := host.Stat(t.File.Path)
	return err == nil && !t.File.ModTime.IsZero() && !t.File.ModTime.Equal(time.Unix(st.Mtim.Unix()))
}

// removeFile removes a file. A missing one is no error.
func removeFile(host hostfs.Root, file string) error {
	if err := host.Remove(file); err != nil {
		return fmt.Errorf("remove CDI spec %q: %w", file, err)
	}
	return nil
}
