// SPDX-License-Identifier: Apache-2.0

package devicemetadata

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	subdir   = "dra-device-metadata"
	fileName = "metadata.json"

	// MaxSize bounds a file, in bytes. A device with 32 attributes of maximum length takes 8 KiB.
	MaxSize = 1 << 20
	// maxNames bounds the number of names in one directory.
	maxNames = 4096
)

// Dir holds the plugin data directories of drivers. Its default is /var/lib/kubelet/plugins.
type Dir struct {
	Host hostfs.Root
	Path string // host path
}

// File is one metadata file. Metadata is nil if Err is set.
type File struct {
	Path                              string // host path
	Driver, Namespace, Claim, Request string // from its place
	Metadata                          *Metadata
	Err                               error
}

// Devices returns the devices of the file.
func (f *File) Devices() []Device {
	if f.Metadata == nil {
		return nil
	}
	var all []Device
	for _, r := range f.Metadata.Requests {
		all = append(all, r.Devices...)
	}
	return all
}

// ReadClaim reads the files that a driver wrote for a claim, sorted by request. If the claim has no
// directory, there are none. The error concerns the directory.
func (d Dir) ReadClaim(driver, namespace, claim string) ([]File, error) {
	if !isFileName(driver) || !isFileName(namespace) || !isFileName(claim) || strings.Contains(namespace, "_") {
		return nil, fmt.Errorf("find metadata of claim %s by driver %s: not the names of a claim and a driver: %w",
			diag.Quote(namespace+"/"+claim), diag.Quote(driver), errdefs.ErrInvalidArgument)
	}
	claimDir := path.Join(driver, subdir, namespace+"_"+claim)
	requests, err := d.listNames(claimDir)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, request := range requests {
		f := File{Path: path.Join(d.Path, claimDir, request, fileName), Driver: driver, Namespace: namespace,
			Claim: claim, Request: request}
		f.Metadata, f.Err = d.readFile(&f)
		if errdefs.IsNotFound(f.Err) {
			continue // the driver is about to write it
		}
		files = append(files, f)
	}
	return files, nil
}

// List reads the files of all drivers, sorted by path. The error joins the errors of directories.
func (d Dir) List() (files []File, err error) {
	drivers, err := d.listNames(".")
	for _, driver := range drivers {
		claims, e := d.listNames(path.Join(driver, subdir))
		err = errors.Join(err, e)
		for _, name := range claims {
			namespace, claim, ok := strings.Cut(name, "_")
			if !ok {
				continue
			}
			more, e := d.ReadClaim(driver, namespace, claim)
			files, err = append(files, more...), errors.Join(err, e)
		}
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return files, err
}

// Locate returns the place of a metadata file below the directory, from its host path alone. ok is
// false for any other path.
func (d Dir) Locate(file string) (f File, ok bool) {
	rel, ok := strings.CutPrefix(file, path.Clean(d.Path)+"/")
	parts := strings.Split(rel, "/")
	if !ok || len(parts) != 5 || parts[1] != subdir || parts[4] != fileName {
		return File{}, false
	}
	f = File{Path: file, Driver: parts[0], Request: parts[3]}
	f.Namespace, f.Claim, ok = strings.Cut(parts[2], "_")
	return f, ok
}

// listNames returns the names in a directory below d.Path, sorted. A missing directory, or a file
// of another program, has none.
func (d Dir) listNames(rel string) ([]string, error) {
	f, err := d.Host.OpenBeneath(d.Path, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if errdefs.IsNotFound(err) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", path.Join(d.Path, rel), hostfs.WithoutPath(err))
	}
	defer f.Close()
	names, err := hostfs.ReadNames(f, maxNames)
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", path.Join(d.Path, rel), hostfs.WithoutPath(err))
	}
	return slices.DeleteFunc(names, func(name string) bool { return !isFileName(name) }), nil
}

// readFile reads one file and checks that its content matches its place.
func (d Dir) readFile(at *File) (*Metadata, error) {
	rel := strings.TrimPrefix(at.Path, path.Clean(d.Path)+"/")
	data, err := d.Host.ReadBeneath(d.Path, rel, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read device metadata %q: %w", at.Path, hostfs.WithoutPath(err))
	}
	m, err := Parse(string(data), at.Path)
	if err != nil {
		return nil, err
	}
	return m, at.checkPlace(m)
}

// checkPlace checks that the content belongs to the claim, request and driver of the file's place,
// so that a driver cannot describe another driver's devices.
func (f *File) checkPlace(m *Metadata) error {
	wrong := func(field, found, want string) error {
		return &diag.Diagnostic{File: f.Path, Field: field, Found: diag.Quote(found),
			Rule: "must be " + diag.Quote(want) + ", as in the file's path"}
	}
	switch {
	case m.Namespace != f.Namespace:
		return wrong("metadata.namespace", m.Namespace, f.Namespace)
	case m.Claim != f.Claim:
		return wrong("metadata.name", m.Claim, f.Claim)
	}
	for i, r := range m.Requests {
		if base, _, _ := strings.Cut(r.Name, "/"); base != f.Request {
			return wrong(fmt.Sprintf("requests[%d].name", i), r.Name, f.Request)
		}
		for j, d := range r.Devices {
			if d.Driver != f.Driver {
				return wrong(fmt.Sprintf("requests[%d].devices[%d].driver", i, j), d.Driver, f.Driver)
			}
		}
	}
	return nil
}

// isFileName reports whether a name is one path element and not hidden.
func isFileName(name string) bool {
	return name != "" && name[0] != '.' && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}
