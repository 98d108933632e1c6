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

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hooksd"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// maxNames bounds the names of a directory that are looked at.
const maxNames = 1 << 20

const validateLong = `validate checks device-info files against the Device Information Specification
1.1.0, CDI files against the CDI specification of their version, hooks.d files
against oci-hooks(5), and Jackfield's own configuration. It tells them apart by
their content; files called .yaml or .yml are CDI or a configuration.

Each finding is one line, FILE:LINE:COLUMN: what is wrong and what is wanted. A
file without an error has a line that says ok, unless -q is given. Warnings are
shown, and alone leave the exit status at 0; with --strict, at 1. Of a directory, every file in it is read, in sorted order,
and no directory below it; hidden ones only where they are CDI or hooks.d files
called .json or .yaml, which are in use. CDI files of a directory that declare the
same device are told of.

It is also checked that nobody but root and the caller can write a file of CDI,
hooks.d or the configuration, and that what the first two refer to exists on this
host (below --root). Both are errors where this host reads the file, and warnings
elsewhere, as in a checkout. --no-host leaves both out, for files that are made for
other hosts. So it is with - for standard input.`

func validateCommand(env Env) *cobra.Command {
	var (
		n      node
		out    output
		noHost bool
		strict bool
		quiet  bool
	)
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check device-info, CDI and hooks.d files, and the configuration",
		Long:  validateLong,
		Example: "  jackfield validate /etc/cdi /var/run/cdi\n" +
			"  jackfield validate --no-host vendor.json\n" +
			"  nvidia-ctk cdi generate | jackfield validate -\n" +
			"  jackfield validate /etc/jackfield/config.yaml\n" +
			"  jackfield validate /etc/containers/oci/hooks.d\n" +
			"  jackfield validate /var/run/k8s.cni.cncf.io/devinfo/cni",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			if len(args) == 0 {
				return usagef(cmd, "nothing to read: name a file or a directory")
			}
			host, err := n.host(cmd)
			if err != nil {
				return err
			}
			v := validator{host: host, checkHost: !noHost, strict: strict, quiet: quiet, findings: []finding{}}
			if err := v.findReadDirs(&n, env); err != nil {
				return err
			}
			for _, arg := range args {
				if arg == "-" {
					if err := v.stream(env.Stdin); err != nil {
						return err
					}
					continue
				}
				p, err := n.hostPath(cmd, arg)
				if err != nil {
					return err
				}
				v.path(p, arg)
			}
			if v.files == 0 {
				return usagef(cmd, "nothing to read: no file in %s", strings.Join(args, ", "))
			}
			return v.print(env, out)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "end with 1 on warnings, too")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print findings alone, and nothing of files that are right")
	cmd.Flags().BoolVar(&noHost, "no-host", false, "do not look at the owner and mode of a file, nor for what it refers to on the host")
	n.rootFlag(cmd)
	out.flag(cmd)
	return cmd
}

// validator gathers the findings of a run.
type validator struct {
	host      hostfs.Root
	checkHost bool
	strict    bool     // warnings count
	quiet     bool     // nothing is printed of files that are right
	readDirs  []string // whose CDI and hooks.d files this host reads, symlinks resolved
	files     int      // that were looked at
	findings  []finding
	lines     []validateLine
}

// validateLine is a finding, or a file that is right as far as it alone tells.
type validateLine struct {
	finding, file, holds string
}

// findReadDirs finds the directories that this host reads. A configuration that cannot be read has the default ones.
func (v *validator) findReadDirs(n *node, env Env) error {
	dirs, err := cdiregistry.DirsFromEnv(env.Getenv(cdiregistry.DirsEnv))
	if err != nil {
		return err
	}
	cfg, err := n.config(v.host)
	if err != nil {
		cfg = config.Default()
	}
	if dirs == nil {
		dirs = cfg.CDI.SpecDirs
	}
	for _, dir := range slices.Concat(dirs, cfg.Hooks.Dirs, []string{"/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d"}) {
		v.readDirs = append(v.readDirs, v.resolved(dir))
	}
	return nil
}

// resolved is a directory with its symlinks resolved, as far as it is there.
func (v *validator) resolved(dir string) string {
	if real, err := v.host.Resolve(dir); err == nil {
		return real
	}
	return path.Clean(dir)
}

// isRead reports whether this host reads the file, so that it must be usable here.
func (v *validator) isRead(hostPath string) bool {
	return slices.Contains(v.readDirs, v.resolved(path.Dir(hostPath)))
}

func (v *validator) add(found ...finding) {
	v.findings = append(v.findings, found...)
	for _, f := range found {
		v.lines = append(v.lines, validateLine{finding: f.String()})
	}
}

// checked notes that a file was checked, and what it holds.
func (v *validator) checked(shown, holds string) {
	v.lines = append(v.lines, validateLine{file: shown, holds: holds})
}

// okLine says that a file is right; false where it has an error, which may be another file's doing.
func (v *validator) okLine(l validateLine) (string, bool) {
	warnings := 0
	for _, f := range v.findings {
		if f.File != l.file {
			continue
		}
		if f.Severity == severityError {
			return "", false
		}
		warnings++
	}
	if warnings > 0 {
		l.holds += ", " + count(warnings, "warning")
	}
	return plain(l.file) + ": ok (" + l.holds + ")", true
}

// count is "1 device" or "2 devices".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// path checks a file, or the files in a directory; shown is the path in
// messages, as the caller wrote it.
func (v *validator) path(hostPath, shown string) {
	st, err := v.host.Stat(hostPath)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		v.file(hostPath, shown, true)
		return
	}
	names, err := v.host.ReadDir(hostPath, maxNames)
	if err != nil {
		v.files++
		v.add(cannotRead(shown, err))
		return
	}
	cdi := false
	for _, name := range names {
		p := path.Join(hostPath, name)
		if st, err := v.host.Stat(p); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR || name[0] == '.' && !v.readHidden(p) {
			continue
		}
		cdi = v.file(p, path.Join(shown, name), false) == formatCDI || cdi
	}
	if cdi {
		v.conflicts(hostPath, shown)
	}
}

// readHidden tells of a file with a dot in front whether it is read: as CDI and
// hooks.d it is, where its name ends as theirs do.
func (v *validator) readHidden(hostPath string) bool {
	ext := path.Ext(hostPath)
	if ext != ".json" && ext != ".yaml" {
		return false
	}
	data, err := v.host.ReadFile(hostPath, cdiregistry.DefaultMaxFileSize)
	if err != nil {
		return false
	}
	f := recognise(hostPath, data)
	return f == formatCDI || f == formatHooks
}

// file checks one file, and gives what it is. named tells that the caller named it.
func (v *validator) file(hostPath, shown string, named bool) format {
	v.files++
	st, err := v.host.Stat(hostPath)
	switch {
	case err != nil:
		v.add(cannotRead(shown, err))
		return formatUnknown
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		v.add(fileFinding(shown, severityError, "a "+hostfs.TypeName(st.Mode), "a regular file"))
		return formatUnknown
	case st.Size > cdiregistry.DefaultMaxFileSize:
		v.add(fileFinding(shown, severityError, fmt.Sprintf("%d bytes", st.Size), fmt.Sprintf("at most %d bytes", cdiregistry.DefaultMaxFileSize)))
		return formatUnknown
	}
	data, err := v.host.ReadFile(hostPath, cdiregistry.DefaultMaxFileSize)
	if err != nil {
		v.add(cannotRead(shown, err))
		return formatUnknown
	}
	is := recognise(shown, data)
	switch is {
	case formatDeviceInfo:
		v.deviceInfo(hostPath, shown, data)
	case formatCDI:
		v.cdi(hostPath, shown, data)
	case formatHooks:
		v.hooks(hostPath, shown)
	case formatConfig:
		v.config(hostPath, shown, data)
	case formatManifest:
		severity := severityWarning
		if named || v.isRead(hostPath) {
			severity = severityError
		}
		v.add(manifestFinding(shown, severity))
	case formatEmpty:
		v.add(fileFinding(shown, severityError, "nothing", "a device-info map, a CDI spec or a hook"))
	default:
		severity := severityError
		if !named && path.Ext(shown) != ".json" {
			severity = severityWarning // a README beside the files is no mistake
		}
		v.add(unknown(shown, severity, data, path.Ext(shown) == ".json"))
	}
	return is
}

// manifestFinding is a Kubernetes object, which another command checks.
func manifestFinding(shown, severity string) finding {
	f := fileFinding(shown, severity, "a Kubernetes object", "device-info, CDI, hooks.d or a configuration")
	f.Hint = "run `jackfield explain " + shown + "` on pods and workloads"
	f.text = "is a Kubernetes object, and was not checked: " + f.Hint
	return f
}

// unknown is a file that is none of those that are checked.
func unknown(shown, severity string, data []byte, isJSON bool) finding {
	f := fileFinding(shown, severity, "neither", `device-info ("type" and "version"), CDI ("cdiVersion" and "kind") or hooks.d ("hook" and "stages")`)
	f.text = "is neither device-info (it has no \"type\" and \"version\") nor CDI (no \"cdiVersion\" and \"kind\") nor hooks.d (no \"hook\" and \"stages\"), and was not checked"
	if isJSON {
		f.notJSON(data)
	}
	return f
}

func (v *validator) deviceInfo(hostPath, shown string, data []byte) {
	if st, err := v.host.Lstat(hostPath); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		v.add(fileFinding(shown, severityWarning, "a symlink", "a regular file, for no symlink is followed where device-info is read"))
	}
	info, err := deviceinfo.Parse(data, shown)
	if err != nil {
		v.add(fromDeviceInfoError(shown, err)...)
		return
	}
	v.add(fromDeviceInfo(shown, severityWarning, info.Warnings)...)
	v.checked(shown, "device-info of type "+string(info.Type))
}

// stream checks what comes on standard input: its content alone.
func (v *validator) stream(stdin io.Reader) error {
	const shown = "standard input"
	data, err := hostfs.ReadAtMost(stdin, cdiregistry.DefaultMaxFileSize)
	if err != nil {
		return fmt.Errorf("read %s: %w", shown, err)
	}
	v.files++
	// It has no name to go by: what does not look like JSON is YAML.
	isJSON := strings.HasPrefix(strings.TrimLeft(string(data), "\ufeff \t\r\n"), "{")
	name := "-.yaml"
	if isJSON {
		name = "-.json"
	}
	switch recognise(name, data) {
	case formatDeviceInfo:
		v.deviceInfo("", shown, data)
	case formatCDI:
		v.add(fromCDI(shown, new(cdiregistry.Validator).Validate(data))...)
		v.checked(shown, countDevices(data))
	case formatHooks:
		_, problems := hooksd.Parse(data, shown)
		v.add(fromHooks(shown, problems)...)
		v.checked(shown, "1 hook")
	case formatConfig:
		v.config("", shown, data)
	case formatManifest:
		v.add(manifestFinding("-", severityError))
	default:
		v.add(unknown(shown, severityError, data, isJSON))
	}
	return nil
}

func (v *validator) print(env Env, out output) error {
	bad := v.strict && len(v.findings) > 0
	for _, f := range v.findings {
		bad = bad || f.Severity == severityError
	}
	err := out.write(env.Stdout, v.findings, func(w io.Writer) error {
		for _, l := range v.lines {
			line := l.finding
			if l.file != "" {
				var ok bool
				if line, ok = v.okLine(l); !ok || v.quiet {
					continue
				}
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
		return nil
	})
	return answer(err, !bad)
}

// hooks checks a hooks.d file, as a node would that reads it.
func (v *validator) hooks(hostPath, shown string) {
	problems, err := hooksd.ValidateFile(v.host, hostPath, hooksd.ValidateOptions{
		CheckHost: v.checkHost, TrustAnyone: notInUse(v.host) || !v.checkHost})
	if err != nil {
		v.add(cannotRead(shown, err))
		return
	}
	found := fromHooks(shown, problems)
	if v.checkHost && !v.isRead(hostPath) {
		alone, err := hooksd.ValidateFile(v.host, hostPath, hooksd.ValidateOptions{TrustAnyone: true})
		if err != nil {
			v.add(cannotRead(shown, err))
			return
		}
		onlyWarnOfHost(found, fromHooks(shown, alone))
	}
	v.add(found...)
	v.checked(shown, "1 hook")
}

// onlyWarnOfHost makes findings warnings that the file alone does not have: they are about this host, which does not read it.
func onlyWarnOfHost(found, ofFileAlone []finding) {
	for i := range found {
		if !slices.Contains(ofFileAlone, found[i]) {
			found[i].Severity = severityWarning
		}
	}
}

// config checks a configuration, with its policy, as a node would that reads it;
// hostPath is "" for one that is no file.
func (v *validator) config(hostPath, shown string, data []byte) {
	cfg, err := config.Parse(data, shown)
	if err != nil {
		v.add(fromConfig(shown, err)...)
		return
	}
	if hostPath != "" && v.checkHost && !notInUse(v.host) {
		if _, err := config.Load(v.host, hostPath); err != nil {
			f := cannotRead(shown, err)
			if hostPath != config.DefaultPath {
				f.Severity = severityWarning
				f.text = "cannot be read as the node's configuration: " + f.Found
			}
			v.add(f)
		}
	}
	if _, err := resolve.Policy(cfg); err != nil {
		v.add(fromPolicy(cfg, err)...)
	} else {
		v.add(v.unreachableRules(cfg)...)
	}
	v.checked(shown, count(len(cfg.Policy.Rules), "rule"))
}
