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
	checkHost bool            // check owners and modes of files, and the things of the host that files refer to
	readDirs  map[string]kind // directories that this host reads, symlinks resolved
	specExts  []string        // extensions of the CDI files that this host reads
	as        kind            // of every file; kindUnknown to find the kind of each
}

// File is a file that was checked, or one whose devices another file of its directory declares, too.
type File struct {
	Name     string    // as the caller wrote it
	Content  string    // content of a file without an error; "" if it is unknown
	Findings diag.List // each with the name of the file and a severity; ErrUnavailable if it cannot be read

	kind kind
}

// New reads the directories of the host from its configuration. If that is unreadable or not trusted, the defaults
// apply. specDirs is the value of CDI_SPEC_DIRS. Without checkHost, nothing that depends on the host is checked. as is
// one of [KindNames], or "" to find the kind of each file by its place.
func New(host hostfs.Root, specDirs, as string, checkHost bool) (*Validator, error) {
	if as != "" && !slices.Contains(KindNames(), as) {
		return nil, fmt.Errorf("invalid kind %q: must be one of %s: %w", as, strings.Join(KindNames(), ", "),
			errdefs.ErrInvalidArgument)
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
	v := &Validator{host: host, checkHost: checkHost, specExts: cfg.CDI.Extensions, as: kind(as),
		readDirs: map[string]kind{}}
	podmanHooks := []string{"/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d"}
	for k, dirs := range map[kind][]string{
		kindCDI: dirs, kindHook: slices.Concat(cfg.Hooks.Dirs, podmanHooks),
		kindDeviceInfo: {cfg.DeviceInfo.CNIDir, cfg.DeviceInfo.DPDir},
	} {
		for _, dir := range dirs {
			v.readDirs[v.host.Canonical(dir)] = k
		}
	}
	return v, nil
}

// isReadDir reports whether this host reads the files of a directory, so that they must be usable here.
func (v *Validator) isReadDir(dir string) bool {
	_, isRead := v.readDirs[v.host.Canonical(dir)]
	return isRead
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
		// Editors and ConfigMap volumes leave hidden files, which no reader of the directory opens.
		if entry[0] == '.' && !f.isReadHidden() {
			continue
		}
		hasSpec = hasSpec || f.kind == kindCDI
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
	return (ext == ".json" || ext == ".yaml") && (f.kind == kindCDI || f.kind == kindHook)
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
		fault.Found, fault.Rule = fmt.Sprintf("%d bytes", st.Size), fmt.Sprintf("must have at most %d bytes: split it into "+
			"several files", maxSize)
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
	return v.checkText(text{name: name, isNamed: true, data: data}), nil
}

// text is the content of a file, or of standard input.
type text struct {
	hostPath string // "" for standard input
	name     string // in messages
	ext      string // "" for standard input
	isNamed  bool   // the caller named the file itself
	data     []byte
}

// checkText checks the content of a file by its kind.
func (v *Validator) checkText(t text) File {
	f := File{Name: t.name, kind: v.kindOf(t)}
	check := map[kind]func(text) (content string, found diag.List){
		kindDeviceInfo: v.checkDeviceInfo,
		kindMetadata:   v.checkMetadata,
		kindCDI:        v.checkSpec,
		kindHook:       v.checkHook,
		kindConfig:     v.checkConfig,
		kindManifest:   v.checkManifest,
		kindNetwork:    checkNetwork,
		kindUnknown:    rejectUnknown,
	}[f.kind]
	f.Content, f.Findings = check(t)
	return f
}

// rejectUnknown is about a file of unknown kind. A README beside the files of a directory is no mistake.
func rejectUnknown(t text) (content string, found diag.List) {
	d := &diag.Diagnostic{File: t.name, Severity: diag.SeverityError,
		Rule: "not checked: neither its path nor its content tells the kind of file",
		Hint: "name the kind with --as: " + strings.Join(KindNames(), ", ")}
	if !t.isNamed && !isDataFile(t.ext) {
		d.Severity = diag.SeverityWarning
	}
	return "", diag.List{d}
}
