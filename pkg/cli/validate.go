// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"path"
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

Each finding is one line, FILE:LINE:COLUMN: what is wrong and what is wanted.
Nothing is printed of files that are right. Warnings are shown, and alone leave
the exit status at 0. Of a directory, every file in it is read, in sorted order,
and no directory below it; hidden ones only where they are CDI or hooks.d files
called .json or .yaml, which are in use. CDI files of a directory that declare the
same device are told of.

It is also checked that nobody but root and the caller can write a file of CDI,
hooks.d or the configuration, and that what the first two refer to exists on this
host (below --root); --no-host leaves both out, for files that are made for other
hosts. So it is with - for standard input.`

func validateCommand(env Env) *cobra.Command {
	var (
		n      node
		out    output
		noHost bool
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
			v := validator{host: host, checkHost: !noHost, findings: []finding{}}
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
	cmd.Flags().BoolVar(&noHost, "no-host", false, "do not look at the owner and mode of a file, nor for what it refers to on the host")
	n.rootFlag(cmd)
	out.flag(cmd)
	return cmd
}

// validator gathers the findings of a run.
type validator struct {
	host      hostfs.Root
	checkHost bool
	files     int // that were looked at
	findings  []finding
}

func (v *validator) add(f ...finding) { v.findings = append(v.findings, f...) }

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
		v.cdi(hostPath, shown)
	case formatHooks:
		v.hooks(hostPath, shown)
	case formatConfig:
		v.config(hostPath, shown, data)
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
	case formatHooks:
		_, problems := hooksd.Parse(data, shown)
		v.add(fromHooks(shown, problems)...)
	case formatConfig:
		v.config("", shown, data)
	default:
		v.add(unknown(shown, severityError, data, isJSON))
	}
	return nil
}

func (v *validator) print(env Env, out output) error {
	bad := false
	for _, f := range v.findings {
		bad = bad || f.Severity == severityError
	}
	err := out.write(env.Stdout, v.findings, func(w io.Writer) error {
		for _, f := range v.findings {
			if _, err := fmt.Fprintln(w, f); err != nil {
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
	v.add(fromHooks(shown, problems)...)
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
			v.add(cannotRead(shown, err))
		}
	}
	if _, err := resolve.Policy(cfg); err != nil {
		v.add(fromPolicy(cfg, err))
	}
}
