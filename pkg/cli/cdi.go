// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

func cdiCommand(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "cdi",
		Short: "Generate CDI files, and clear away those of owners that are gone",
	}, group(&cobra.Command{
		Use:   "generate",
		Short: "Generate CDI files with the tools of the vendors",
	}, generateNvidiaCommand(env)), transientCommand(env))
}

// nvidiaFile is where NVIDIA's own tools look for the file and put it.
const nvidiaFile = "/etc/cdi/nvidia.yaml"

func generateNvidiaCommand(env Env) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "nvidia",
		Short: "Generate the CDI file of this host's NVIDIA GPUs, with nvidia-ctk",
		Long: "nvidia runs `nvidia-ctk cdi generate` in a clean environment, checks what it prints as any CDI file is checked, and\n" +
			"writes the file in one step, with mode 0644; the extension, .yaml or .json, chooses the syntax. It prints the path.",
		Example: "  jackfield cdi generate nvidia\n  jackfield cdi generate nvidia -o /var/run/cdi/nvidia.json\n  jackfield cdi generate nvidia -o -",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ext := filepath.Ext(out); out != "-" && ext != ".yaml" && ext != ".json" {
				return usagef(cmd, "--output: found %q, want a name that ends in .yaml or .json, or - for standard output", out)
			}
			text, err := nvidiaCtk(cmd.Context(), env)
			if err != nil {
				return err
			}
			spec, diags := new(cdiregistry.Validator).Parse(text)
			if len(diags) > 0 {
				for _, f := range fromCDI("the output of nvidia-ctk", diags) {
					env.say("%s", f)
				}
				return errAnswerNo
			}
			if out == "-" {
				_, err := env.Stdout.Write(text)
				return err
			}
			abs, err := filepath.Abs(out)
			if err != nil {
				return err
			}
			file, err := cdiregistry.WriteSpec(hostfs.Host(), filepath.Dir(abs), filepath.Base(abs), spec)
			if err != nil {
				return err
			}
			// Nothing says that a node is to read it where it was put.
			if diags, err := cdiregistry.ValidateFile(hostfs.Host(), file, cdiregistry.ValidateOptions{}); err == nil {
				for i, f := range fromCDI(file, diags) {
					what := ""
					if diags[i].Severity == cdiregistry.SeverityError {
						what = "no container gets devices of it as it is: "
					}
					env.say("%s%s", what, f)
				}
			}
			_, err = fmt.Fprintln(env.Stdout, plain(file))
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", nvidiaFile, "`file` to write, - for standard output")
	return cmd
}

const transientLong = `transient lists CDI files that live as long as something else, a container or a
resource claim: by their names, VENDOR-CLASS_ID.json or .yaml, in the last of the
CDI directories, where CDI's libraries write them.

--alive says which owners live: a file with their IDs in it, one a line, or - to read
them from standard input. Then only the files of the others are listed, as far as
they are older than --older-than, so that an owner made after the list was is safe;
--remove removes them. A list of UIDs, or of a runtime's IDs, is about files that
have such an ID in their names, and about no others. An empty list, or one with more
than an ID on a line, is refused, because it is what a failed command gives.`

func transientCommand(env Env) *cobra.Command {
	var (
		n      node
		alive  string
		remove bool
		age    time.Duration
	)
	cmd := &cobra.Command{
		Use:   "transient",
		Short: "List the CDI files of containers and claims, and remove those whose owner is gone",
		Long:  transientLong,
		Example: "  jackfield cdi transient\n" +
			"  kubectl get resourceclaims -A -o jsonpath='{range .items[*]}{.metadata.uid}{\"\\n\"}{end}' |\n" +
			"      jackfield cdi transient --alive - --remove",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case (remove || cmd.Flags().Changed("older-than")) && alive == "":
				return usagef(cmd, "--remove and --older-than want --alive: the IDs of the owners that live")
			case age < 0:
				return usagef(cmd, "--older-than: found %s, want a duration that is not negative", age)
			}
			host, cfg, err := n.load(cmd)
			if err != nil {
				return err
			}
			registry, err := n.registry(env, host, cfg, false)
			if err != nil {
				return err
			}
			defer registry.Close()
			list := ofLastDirectory(registry.Snapshot())
			if alive != "" {
				ids, err := readIDs(env, alive)
				if err != nil {
					return err
				}
				list = orphans(list, ids, time.Now().Add(-age))
			}
			if !remove {
				return printTransients(env, list)
			}
			removed, err := cdiregistry.RemoveStale(host, list, func(string) bool { return false })
			for _, file := range removed {
				fmt.Fprintln(env.Stdout, plain(file))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&alive, "alive", "", "`file` with the IDs of the owners that live, - for standard input")
	cmd.Flags().DurationVar(&age, "older-than", defaultAge, "with --alive, the least `age` of a file")
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the files of owners that are gone, and print their paths")
	n.flags(cmd)
	return cmd
}

func printTransients(env Env, list []cdiregistry.Transient) error {
	if len(list) == 0 {
		return nil
	}
	var t table
	t.add("OWNER", "KIND", "CHANGED", "FILE")
	for _, tr := range list {
		t.add(tr.ID, tr.File.Kind, tr.File.ModTime.UTC().Format("2006-01-02 15:04:05"), tr.File.Path)
	}
	var b strings.Builder
	t.write(&b, "")
	_, err := fmt.Fprint(env.Stdout, b.String())
	return err
}
