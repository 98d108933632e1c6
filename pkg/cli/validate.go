// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxNames bounds the entries of a directory that are read.
const maxNames = 1 << 20

const validateLong = `validate checks device-info files against the Device Information Specification
1.1.0, device metadata of resource claims against KEP-5304, CDI files against the
CDI specification of their version, hooks.d files against oci-hooks(5), and
Jackfield's own configuration. It detects the format by the content; a file called
.yaml or .yml is CDI or a configuration.

Each diagnostic is one line, FILE:LINE:COLUMN: what is wrong and what is wanted. A
file without an error has a line that says ok, unless -q is given. Warnings alone
leave the exit status at 0; with --strict, at 1.

Of a directory, every file is read, in sorted order, and no directory below it.
Hidden files are read only if they are CDI or hooks.d files called .json or .yaml,
which are in use. CDI files of a directory that declare the same device are
reported.

CDI files, hooks.d files and the configuration must not be writable by other users
than root and the caller. What CDI and hooks.d files refer to must exist on this
host (below --root). Both are errors where this host reads the file, and warnings
elsewhere, as in a checkout. --no-host skips both checks, for files that are made
for other hosts; so does - for standard input.`

func validateCommand(env Env) *cobra.Command {
	var (
		n      hostFlags
		out    output
		v      validator
		noHost bool
	)
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check device-info, device metadata, CDI and hooks.d files, and the configuration",
		Long:  validateLong,
		Example: "  jackfield validate /etc/cdi /var/run/cdi\n" +
			"  jackfield validate --no-host vendor.json\n" +
			"  nvidia-ctk cdi generate | jackfield validate -\n" +
			"  jackfield validate /etc/jackfield/config.yaml\n" +
			"  jackfield validate /etc/containers/oci/hooks.d\n" +
			"  jackfield validate /var/run/k8s.cni.cncf.io/devinfo/cni\n" +
			"  jackfield validate dra-device-metadata/*/*/metadata.json",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "nothing to read: name a file or a directory")
			}
			var err error
			if v.host, err = n.openHost(cmd); err != nil {
				return err
			}
			v.checkHost, v.findings = !noHost, diag.List{}
			if err := v.findReadDirs(env); err != nil {
				return err
			}
			for _, arg := range args {
				if arg == "-" {
					if err := v.validateStdin(env.Stdin); err != nil {
						return err
					}
					continue
				}
				p, err := n.hostPath(cmd, arg)
				if err != nil {
					return err
				}
				v.validatePath(p, arg)
			}
			if v.files == 0 {
				return usagef(cmd, "nothing to read: no file in %s", strings.Join(args, ", "))
			}
			return v.printFindings(env, out)
		},
	}
	cmd.Flags().BoolVar(&v.strict, "strict", false, "end with exit status 1 on warnings, too")
	cmd.Flags().BoolVarP(&v.quiet, "quiet", "q", false, "print diagnostics only, and nothing about valid files")
	cmd.Flags().BoolVar(&noHost, "no-host", false, "do not check the owner and mode of a file, nor what it refers to on the host")
	n.addRootFlag(cmd)
	out.addFlag(cmd)
	return cmd
}

// validator collects the diagnostics of a run.
type validator struct {
	host      hostfs.Root
	checkHost bool
	strict    bool     // warnings count
	quiet     bool     // nothing is printed of files that are right
	readDirs  []string // whose CDI and hooks.d files this host reads, symlinks resolved
	specExts  []string // extensions of the CDI files that this host reads
	files     int      // that were looked at
	findings  diag.List
	lines     []validateLine
}

// validateLine is a diagnostic, or a file that is valid as far as its content shows.
type validateLine struct {
	finding, file, holds string
}

// findReadDirs finds the directories that this host reads, and the extensions of CDI files. An unreadable
// configuration has the default ones.
func (v *validator) findReadDirs(env Env) error {
	dirs, err := cdiregistry.DirsFromEnv(env.Getenv(cdiregistry.DirsEnv))
	if err != nil {
		return err
	}
	cfg, err := config.LoadOrDefault(v.host, "", config.Options{})
	if err != nil {
		cfg = config.Default()
	}
	v.specExts = cfg.CDI.Extensions
	if dirs == nil {
		dirs = cfg.CDI.SpecDirs
	}
	for _, dir := range slices.Concat(dirs, cfg.Hooks.Dirs, []string{"/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d"}) {
		v.readDirs = append(v.readDirs, v.host.Canonical(dir))
	}
	return nil
}

// isRead reports whether this host reads the file, so that it must be usable here.
func (v *validator) isRead(hostPath string) bool {
	return slices.Contains(v.readDirs, v.host.Canonical(path.Dir(hostPath)))
}

func (v *validator) addFindings(found ...*diag.Diagnostic) {
	v.findings = append(v.findings, found...)
	for _, f := range found {
		v.lines = append(v.lines, validateLine{finding: plain(f.Error())})
	}
}

// addChecked records a file that was checked, and what it holds.
func (v *validator) addChecked(shown, holds string) {
	v.lines = append(v.lines, validateLine{file: shown, holds: holds})
}

// validatePath checks a file, or the files in a directory; shown is the path in messages, as the
// caller wrote it.
func (v *validator) validatePath(hostPath, shown string) {
	st, err := v.host.Stat(hostPath)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		v.validateFile(hostPath, shown, true)
		return
	}
	names, err := v.host.ReadDir(hostPath, maxNames)
	if err != nil {
		v.files++
		v.addFindings(cannotRead(shown, err))
		return
	}
	cdi := false
	for _, name := range names {
		p := path.Join(hostPath, name)
		if st, err := v.host.Stat(p); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR || name[0] == '.' && !v.isReadHidden(p) {
			continue
		}
		cdi = v.validateFile(p, path.Join(shown, name), false) == formatCDI || cdi
	}
	if cdi {
		v.addConflicts(hostPath, shown)
	}
}

// isReadHidden reports whether a hidden file is read: CDI and hooks.d files are, if their name ends
// as theirs do.
func (v *validator) isReadHidden(hostPath string) bool {
	ext := path.Ext(hostPath)
	if ext != ".json" && ext != ".yaml" {
		return false
	}
	data, err := v.host.ReadFile(hostPath, cdiregistry.DefaultMaxFileSize)
	if err != nil {
		return false
	}
	f := detectFormat(hostPath, data)
	return f == formatCDI || f == formatHooks
}

// validateFile checks one file, and returns its format. named is set if the caller named the file
// itself.
func (v *validator) validateFile(hostPath, shown string, named bool) format {
	v.files++
	st, err := v.host.Stat(hostPath)
	switch {
	case err != nil:
		v.addFindings(cannotRead(shown, err))
		return formatUnknown
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		v.addFindings(fileDiagnostic(shown, diag.SeverityError, "a "+hostfs.TypeName(st.Mode), "want a regular file"))
		return formatUnknown
	case st.Size > cdiregistry.DefaultMaxFileSize:
		v.addFindings(fileDiagnostic(shown, diag.SeverityError, fmt.Sprintf("%d bytes", st.Size), fmt.Sprintf("want at most %d bytes", cdiregistry.DefaultMaxFileSize)))
		return formatUnknown
	}
	data, err := v.host.ReadFile(hostPath, cdiregistry.DefaultMaxFileSize)
	if err != nil {
		v.addFindings(cannotRead(shown, err))
		return formatUnknown
	}
	return v.validateContent(content{hostPath: hostPath, shown: shown, name: shown, named: named, data: data})
}

// content is the content of a file, or of standard input.
type content struct {
	hostPath    string // "" for standard input
	shown, name string // in messages; whose extension shows the syntax
	named       bool   // the caller named the file itself
	data        []byte
}

// validateContent checks the content of a file by its format, and returns the format.
func (v *validator) validateContent(c content) format {
	isJSON := path.Ext(c.name) == ".json"
	is := detectFormat(c.name, c.data)
	switch is {
	case formatDeviceInfo:
		v.validateDeviceInfo(c)
	case formatMetadata:
		v.validateMetadata(c)
	case formatCDI:
		v.validateCDI(c)
	case formatHooks:
		v.validateHooks(c)
	case formatConfig:
		v.validateConfig(c)
	case formatManifest:
		severity := diag.SeverityWarning
		if c.named || v.isRead(c.hostPath) {
			severity = diag.SeverityError
		}
		if c.hostPath == "" {
			c.shown = "-" // as explain reads it
		}
		d := fileDiagnostic(c.shown, severity, "", "is a Kubernetes object, and was not checked")
		d.Hint = "run `jackfield explain " + c.shown + "` on pods and workloads"
		v.addFindings(d)
	case formatEmpty:
		v.addFindings(fileDiagnostic(c.shown, diag.SeverityError, "nothing", "want a device-info map, a CDI spec or a hook"))
	default:
		severity := diag.SeverityError
		if !c.named && !isJSON {
			severity = diag.SeverityWarning // a README beside the files is no mistake
		}
		v.addFindings(unknownFormat(c.shown, severity, c.data, isJSON))
	}
	return is
}

// unknownFormat is about a file in none of the formats that are checked. The place is that of a
// mistake in the JSON: a file is mostly broken before the key that shows its format.
func unknownFormat(shown string, severity diag.Severity, data []byte, isJSON bool) *diag.Diagnostic {
	d := fileDiagnostic(shown, severity, "", "is neither device-info (it has no \"type\" and \"version\") nor CDI (no \"cdiVersion\" and \"kind\") nor hooks.d (no \"hook\" and \"stages\"), and was not checked")
	if isJSON {
		if _, fault := jsontree.Parse(string(data)); fault != nil {
			d.Line, d.Column = fault.Line, fault.Column
			d.Rule += "; here it ceases to be JSON: " + fault.Message()
		}
	}
	return d
}

// validateStdin checks the content of standard input.
func (v *validator) validateStdin(stdin io.Reader) error {
	const shown = "standard input"
	data, err := hostfs.ReadAtMost(stdin, cdiregistry.DefaultMaxFileSize)
	if err != nil {
		return fmt.Errorf("read %s: %w", shown, err)
	}
	v.files++
	// Without a file name, what does not look like JSON is YAML.
	name := "-.yaml"
	if strings.HasPrefix(strings.TrimLeft(string(data), "\ufeff \t\r\n"), "{") {
		name = "-.json"
	}
	v.validateContent(content{shown: shown, name: name, named: true, data: data})
	return nil
}

func (v *validator) printFindings(env Env, out output) error {
	bad, unread := false, false
	for _, f := range v.findings {
		switch {
		case !v.strict && f.Severity != diag.SeverityError:
		case f.Kind == errNoAnswer:
			unread = true
		default:
			bad = true
		}
	}
	if err := answerError(out.writeResult(env, v.findings, v.formatText), !bad); err != nil || !unread {
		return err
	}
	return errNoAnswer
}

// formatText returns the lines in the order of the checks. A valid file has no line if another file causes an error of it.
func (v *validator) formatText() string {
	hasError, warnings := map[string]bool{}, map[string]int{}
	for _, f := range v.findings {
		if f.Severity == diag.SeverityError {
			hasError[f.File] = true
		} else {
			warnings[f.File]++
		}
	}
	var b strings.Builder
	for _, l := range v.lines {
		switch {
		case l.file == "":
			b.WriteString(l.finding + "\n")
		case !v.quiet && !hasError[l.file]:
			if n := warnings[l.file]; n > 0 {
				l.holds += ", " + diag.Count(n, "warning")
			}
			b.WriteString(plain(l.file) + ": ok (" + l.holds + ")\n")
		}
	}
	return b.String()
}
