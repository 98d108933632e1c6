// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/report/validate"
	"github.com/jackfield/jackfield/pkg/cdi"
)

const validateLong = `validate checks device-info files against the Device Information Specification
1.1.0, device metadata of resource claims against KEP-5304, CDI files against the
CDI specification of their version, hooks.d files against oci-hooks(5),
Jackfield's own configuration, and networks of jackfield-cni: CNI configuration
files, and NetworkAttachmentDefinitions in manifests.

The kind of a file is that of the directory from which this host reads it: CDI,
hooks.d and device-info directories, /etc/jackfield, and the plugin's file in
/etc/nri/conf.d. Directories called cdi, hooks.d, net.d, devinfo/* and
dra-device-metadata hold the same kinds elsewhere. A file called config.yaml is a
configuration, and *.conf and *.conflist are CNI networks. Any other file names its
kind by cdiVersion, cniVersion or apiVersion. For all others, --as names the kind.

Each diagnostic is one line, FILE:LINE:COLUMN: the fault and the rule. A
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
		n                     hostFlags
		out                   output
		strict, quiet, noHost bool
		as                    string
	)
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check device-info, device metadata, CDI and hooks.d files, and the configuration",
		Long:  validateLong,
		Example: "  jackfield validate /etc/cdi /var/run/cdi\n" +
			"  jackfield validate --no-host vendor.json\n" +
			"  nvidia-ctk cdi generate | jackfield validate -\n" +
			"  jackfield validate /etc/jackfield/config.yaml\n" +
			"  jackfield validate --as config draft.yaml\n" +
			"  jackfield validate network.yaml /etc/cni/net.d/10-fast.conflist\n" +
			"  jackfield validate /etc/containers/oci/hooks.d\n" +
			"  jackfield validate /var/run/k8s.cni.cncf.io/devinfo/cni\n" +
			"  jackfield validate dra-device-metadata/*/*/metadata.json",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "nothing to read: name a file or a directory")
			}
			host, err := n.openHost(cmd)
			if err != nil {
				return err
			}
			if kinds := validate.KindNames(); as != "" && !slices.Contains(kinds, as) {
				return usagef(cmd, "--as: invalid kind %q: must be one of %s%s", as, strings.Join(kinds, ", "),
					diag.Suggest(as, kinds...))
			}
			v, err := validate.New(host, env.Getenv(cdi.DirsEnv), as, !noHost)
			if err != nil {
				return err
			}
			var files []validate.File
			for i, arg := range args {
				if slices.Contains(args[:i], arg) {
					continue
				}
				if arg == "-" {
					file, err := v.CheckInput(env.Stdin)
					if err != nil {
						return err
					}
					files = append(files, file)
					continue
				}
				p, err := n.hostPath(cmd, arg)
				if err != nil {
					return err
				}
				files = append(files, v.CheckPath(p, arg)...)
			}
			if len(files) == 0 {
				return usagef(cmd, "nothing to read: no file in %s", strings.Join(args, ", "))
			}
			findings := diag.List{} // not null in JSON
			for _, file := range files {
				findings = append(findings, file.Findings...)
			}
			err = out.writeResult(env, validatedFiles(files), func() string { return validateText(files, findings, quiet) })
			return validateError(err, findings, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "end with exit status 1 on warnings, too")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print diagnostics only, and nothing about valid files")
	cmd.Flags().BoolVar(&noHost, "no-host", false, "do not check the owner and mode of a file, nor what it refers to on "+
		"the host")
	cmd.Flags().StringVar(&as, "as", "", "the `kind` of all files: "+strings.Join(validate.KindNames(),
		", ")+" (default: by their place)")
	completeFlag(cmd, "as", fixedValues(validate.KindNames()...))
	n.addRootFlag(cmd)
	out.addFlag(cmd)
	return cmd
}

// validatedFile is a file that was checked.
type validatedFile struct {
	File     string    `json:"file"`
	Valid    bool      `json:"valid"`             // no finding is an error
	Content  string    `json:"content,omitempty"` // a summary of a valid file
	Findings diag.List `json:"findings"`
}

// validatedFiles returns the results in the form of the JSON output. A file with warnings alone is valid.
func validatedFiles(files []validate.File) []validatedFile {
	all := []validatedFile{}
	for _, f := range files {
		isError := func(d *diag.Diagnostic) bool { return !d.IsWarning() }
		v := validatedFile{File: f.Name, Valid: !slices.ContainsFunc(f.Findings, isError),
			Findings: append(diag.List{}, f.Findings...)}
		if v.Valid {
			v.Content = f.Content
		}
		all = append(all, v)
	}
	return all
}

// validateError ends the command, which has written the findings. A fault in a file counts before a file that
// cannot be read.
func validateError(written error, findings diag.List, strict bool) error {
	bad, unread := false, false
	for _, d := range findings {
		switch {
		case d.IsWarning() && !strict:
		case errdefs.IsUnavailable(d):
			unread = true
		default:
			bad = true
		}
	}
	return answerError(written, bad, unread)
}

// validateText returns the findings in the order of the checks, and a line for each valid file unless quiet. A file
// of which another file causes an error has none.
func validateText(files []validate.File, findings diag.List, quiet bool) string {
	byFile := map[string]diag.List{}
	for _, d := range findings {
		byFile[d.File] = append(byFile[d.File], d)
	}
	isError := func(d *diag.Diagnostic) bool { return !d.IsWarning() }
	var b strings.Builder
	for _, file := range files {
		for _, d := range file.Findings {
			b.WriteString(plain(d.Error()) + "\n")
		}
		found, content := byFile[file.Name], file.Content
		if quiet || content == "" || slices.ContainsFunc(found, isError) {
			continue
		}
		if len(found) > 0 {
			content += ", " + diag.Count(len(found), "warning")
		}
		b.WriteString(plain(file.Name) + ": ok (" + content + ")\n")
	}
	return b.String()
}
