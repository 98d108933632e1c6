// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/cdi"
)

const (
	maxNames = 1 << 20 // entries of a directory
	maxSize  = cdi.MaxFileSize
)

// Validator checks files of one host.
type Validator struct {
	host      hostfs.Root
	checkHost bool     // also what depends on the host: owners and modes of files, and what files refer to
	readDirs  []string // whose CDI and hooks.d files this host reads, symlinks resolved
	specExts  []string // extensions of the CDI files that this host reads
	as        format   // of every file, as the caller says; formatUnknown to detect it
}

// File is a file that was checked, or one whose devices another file of its directory declares, too.
type File struct {
	Name     string    // as the caller wrote it
	Content  string    // what the file holds if no finding is an error; "" where that is not known
	Findings diag.List // each with the name of the file and a severity; ErrUnavailable if it cannot be read

	format format
}

// New reads from the host's configuration which files the host reads. If that is unreadable or not trusted, the defaults
// apply. specDirs is the value of CDI_SPEC_DIRS. Without checkHost, what depends on the host
// is not checked. as is one of [FormatNames], or "" to detect the format of each file.
func New(host hostfs.Root, specDirs, as string, checkHost bool) (*Validator, error) {
	if _, known := formatsByName[as]; as != "" && !known {
		return nil, fmt.Errorf("invalid format %q: must be one of %s: %w", as, strings.Join(FormatNames(), ", "), errdefs.ErrInvalidArgument)
	}
	dirs, err := cdi.DirsFromEnv(specDirs)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadOrDefault(host, "", config.Options{RequireOwner: true})
	if err != nil {
		cfg = config.Default()
	}
	if dirs == nil {
		dirs = cfg.CDI.SpecDirs
	}
	v := &Validator{host: host, checkHost: checkHost, specExts: cfg.CDI.Extensions, as: formatsByName[as]}
	for _, dir := range slices.Concat(dirs, cfg.Hooks.Dirs, []string{"/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d"}) {
		v.readDirs = append(v.readDirs, v.host.Canonical(dir))
	}
	return v, nil
}

// isReadDir reports whether this host reads the files of a directory, so that they must be usable here.
func (v *Validator) isReadDir(dir string) bool {
	return slices.Contains(v.readDirs, v.host.Canonical(dir))
}

// CheckPath checks a file, or the files in a directory, in sorted order. name is the path in messages,
// as the caller wrote it.
func (v *Validator) CheckPath(hostPath, name string) []File {
	if !v.isDir(hostPath) {
		return []File{v.checkFile(hostPath, name, true)}
	}
	entries, err := v.host.ReadDir(hostPath, maxNames)
	if err != nil {
		return []File{{Name: name, Findings: diag.List{diag.Unreadable(name, err)}}}
	}
	var files []File
	hasSpec := false
	for _, entry := range entries {
		entryPath := path.Join(hostPath, entry)
		if v.isDir(entryPath) {
			continue
		}
		f := v.checkFile(entryPath, path.Join(name, entry), false)
		if entry[0] == '.' && !f.isReadHidden() {
			continue
		}
		hasSpec = hasSpec || f.format == formatCDI
		files = append(files, f)
	}
	if hasSpec {
		files = append(files, v.findConflicts(hostPath, name)...)
	}
	return files
}

func (v *Validator) isDir(hostPath string) bool {
	st, err := v.host.Stat(hostPath)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// isReadHidden reports whether a host reads the file if it is hidden: CDI and hooks.d files are read, if
// their name ends as theirs do.
func (f *File) isReadHidden() bool {
	ext := path.Ext(f.Name)
	return (ext == ".json" || ext == ".yaml") && (f.format == formatCDI || f.format == formatHooks)
}

// checkFile checks one file. isNamed is set if the caller named the file itself.
func (v *Validator) checkFile(hostPath, name string, isNamed bool) File {
	fault := &diag.Diagnostic{File: name, Severity: diag.SeverityError}
	st, err := v.host.Stat(hostPath)
	switch {
	case err != nil:
		fault = diag.Unreadable(name, err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		fault.Found, fault.Rule = "a "+hostfs.TypeName(st.Mode), "must be a regular file"
	case st.Size > maxSize:
		fault.Found, fault.Rule = fmt.Sprintf("%d bytes", st.Size), fmt.Sprintf("must have at most %d bytes: split it into several files", maxSize)
	default:
		data, err := v.host.ReadFile(hostPath, maxSize)
		if err == nil {
			return v.checkText(text{hostPath: hostPath, name: name, ext: path.Ext(name), isNamed: isNamed, data: data})
		}
		fault = diag.Unreadable(name, err)
	}
	return File{Name: name, Findings: diag.List{fault}}
}

// CheckInput checks the content of standard input, and nothing of the host.
func (v *Validator) CheckInput(stdin io.Reader) (File, error) {
	const name = "standard input"
	data, err := hostfs.ReadAtMost(stdin, maxSize)
	if err != nil {
		return File{}, fmt.Errorf("read %s: %w", name, err)
	}
	// Without a file name, what does not look like JSON is YAML.
	ext := ".yaml"
	if strings.HasPrefix(strings.TrimLeft(string(data), "\ufeff \t\r\n"), "{") {
		ext = ".json"
	}
	return v.checkText(text{name: name, ext: ext, isNamed: true, data: data}), nil
}

// text is the content of a file, or of standard input.
type text struct {
	hostPath string // "" for standard input
	name     string // in messages
	ext      string // shows the syntax
	isNamed  bool   // the caller named the file itself
	data     []byte
}

// checkText checks the content of a file by its format.
func (v *Validator) checkText(t text) File {
	f := File{Name: t.name, format: v.formatOf(t)}
	check := map[format]func(text) (content string, found diag.List){
		formatDeviceInfo: v.checkDeviceInfo,
		formatMetadata:   v.checkMetadata,
		formatCDI:        v.checkSpec,
		formatHooks:      v.checkHook,
		formatConfig:     v.checkConfig,
		formatManifest:   v.checkManifest,
		formatNetwork:    checkNetwork,
		formatEmpty:      rejectEmpty,
		formatUnknown:    rejectUnknown,
	}[f.format]
	f.Content, f.Findings = check(t)
	return f
}

func rejectEmpty(t text) (content string, found diag.List) {
	return "", diag.List{{File: t.name, Severity: diag.SeverityError, Found: "nothing", Rule: "must be a device-info map, a CDI spec or a hook"}}
}

// rejectUnknown is about a file in none of the formats that are checked. The place is that of a
// mistake in the JSON: a file is mostly broken before the key that shows its format.
func rejectUnknown(t text) (content string, found diag.List) {
	d := &diag.Diagnostic{File: t.name, Severity: diag.SeverityError,
		Rule: "is neither device-info (it has no \"type\" and \"version\") nor CDI (no \"cdiVersion\" and \"kind\") nor hooks.d (no \"hook\" and \"stages\") nor a CNI network (no \"cniVersion\"), and was not checked"}
	if t.ext != ".json" {
		if !t.isNamed {
			d.Severity = diag.SeverityWarning // a README beside the files is no mistake
		} else {
			d.Hint = "name the format with --as"
		}
	} else if _, fault := jsontree.Parse(string(t.data)); fault != nil {
		d.Line, d.Column = fault.Line, fault.Column
		d.Rule += "; here it ceases to be JSON: " + fault.Message()
	}
	return "", diag.List{d}
}
