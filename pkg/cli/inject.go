// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/apply/oci"
	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
	"github.com/jackfield/jackfield/pkg/wording"
)

const injectLong = `inject makes the edits that a container's requests stand for in its OCI spec, the
config.json of a bundle: all of them, or none. The spec of a --bundle is changed in
place, in one step; that of --spec goes to standard output, or to the file of -o,
which may be the same. Fields that nobody knows stay as they are.

CDI devices are asked for by name (vendor.com/class=name, vendor.com/class=all, or
an alias such as nvidia=0), and take the place of what the spec has at the same
path. --annotation asks as a pod's annotation does. With --sandbox-id, the sockets
and devices of that pod sandbox's network attachments come as well; what they need
on the host is made under an ID, --container-id or one made from the bundle's path,
and goes with --remove.

Without --config no policy applies: the command is the administrator's own act. With
it, what the policy refuses is refused; --namespace, --pod and --container say whom
to take the container for.`

// wholeID is the length of a sandbox's ID, of containerd and CRI-O alike; their tools
// show the beginning.
const wholeID = 64

// injection is one run of inject.
type injection struct {
	env  Env
	node node
	file specFile

	devices, annotations    []string
	sandboxID, containerID  string
	namespace, pod, ctrName string
	remove                  bool
}

func injectCommand(env Env) *cobra.Command {
	in := injection{env: env}
	cmd := &cobra.Command{
		Use:   "inject {--bundle DIR | --spec FILE} [--cdi-device NAME]...",
		Short: "Put devices and sockets into an OCI spec",
		Long:  injectLong,
		Example: "  jackfield inject --bundle . --cdi-device vendor.com/net=vf0\n" +
			"  runc spec && jackfield inject --spec config.json --cdi-device nvidia=all -o config.json\n" +
			"  jackfield inject --remove --bundle .",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.remove {
				return in.runRemove(cmd)
			}
			return in.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.file.bundle, "bundle", "", "`directory` of the OCI bundle whose config.json to change")
	f.StringVar(&in.file.spec, "spec", "", "OCI config.json `file` to read, - for standard input")
	f.StringVarP(&in.file.out, "output", "o", "", "`file` to write, - for standard output (default: --bundle's own, or standard output)")
	f.StringArrayVar(&in.devices, "cdi-device", nil, "`name` of a CDI device to inject; may be repeated")
	f.StringArrayVar(&in.annotations, "annotation", nil, "a request as the pod annotation `KEY=VALUE` makes it; may be repeated")
	f.StringVar(&in.sandboxID, "sandbox-id", "", "`ID` of the pod sandbox whose network attachments to inject")
	f.StringVar(&in.containerID, "container-id", "", "`ID` under which to keep what the container needs on the host")
	f.StringVar(&in.namespace, "namespace", "", "with --config, `namespace` of the pod")
	f.StringVar(&in.pod, "pod", "", "with --config, `name` of the pod")
	f.StringVar(&in.ctrName, "container", "", "`name` of the container in the pod")
	f.BoolVar(&in.remove, "remove", false, "remove what was made on the host for a container (--bundle, --container-id) or sandbox (--sandbox-id)")
	f.StringVar(&in.node.configFile, "config", "", "configuration `file` whose policy applies (default: no policy, the rest of "+config.DefaultPath+")")
	in.node.rootFlag(cmd)
	completeFlag(cmd, "cdi-device", in.node.completeDevices(env))
	return cmd
}

func (in *injection) run(cmd *cobra.Command) error {
	if err := in.check(cmd); err != nil {
		return err
	}
	annotations, err := in.pairs(cmd)
	if err != nil {
		return err
	}
	if err := in.file.read(in.env.Stdin); err != nil {
		return fmt.Errorf("read OCI spec %q: %w", in.file.name, err)
	}
	defer in.file.close()
	spec, err := oci.ParseConfig(in.file.text)
	if err != nil {
		return fmt.Errorf("read OCI spec %q: %w", in.file.name, err)
	}
	s, err := in.open(cmd)
	if err != nil {
		return err
	}
	defer s.engine.Close()
	text, undo, err := in.edit(cmd.Context(), s, spec, annotations)
	if err != nil {
		return err
	}
	if err := in.file.write(in.env.Stdout, text); err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

func (in *injection) check(cmd *cobra.Command) error {
	in.file.standard()
	switch {
	case in.file.bundle == "" && in.file.spec == "":
		return usagef(cmd, "want --bundle or --spec")
	case in.file.bundle != "" && in.file.spec != "":
		return usagef(cmd, "--bundle and --spec do not go together")
	case cmd.Flags().Changed("output") && in.file.out == "":
		return usagef(cmd, "--output: the name is empty")
	case cmd.Flags().Changed("config") && in.node.configFile == "":
		// An empty variable in a script must not mean that no policy applies.
		return usagef(cmd, "--config: the name is empty")
	case len(in.devices) == 0 && len(in.annotations) == 0 && in.sandboxID == "":
		return usagef(cmd, "there is nothing to inject: give --cdi-device, --annotation or --sandbox-id")
	}
	return nil
}

// pairs are the annotations.
func (in *injection) pairs(cmd *cobra.Command) (map[string]string, error) {
	if len(in.annotations) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(in.annotations))
	for _, a := range in.annotations {
		key, value, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, usagef(cmd, "--annotation: found %q, want KEY=VALUE", a)
		}
		if _, twice := out[key]; twice {
			return nil, usagef(cmd, "--annotation: %q is there twice", key)
		}
		if in.ctrName == "" && annotation.OfOneContainer(key) {
			return nil, usagef(cmd, "--annotation: %q is for one container; say with --container which one this is", key)
		}
		out[key] = value
	}
	return out, nil
}

// injectSite is the node that injects, and where it keeps what it makes.
type injectSite struct {
	stage
	engine  *resolve.Engine
	aliases map[string]string
}

// open makes the engine. Whose CDI files are is asked below a --root as well: what
// they say is going to be run.
func (in *injection) open(cmd *cobra.Command) (*injectSite, error) {
	host, cfg, err := in.node.load(cmd)
	if err != nil {
		return nil, err
	}
	dirs, err := cdiregistry.DirsFromEnv(in.env.Getenv(cdiregistry.DirsEnv))
	if err != nil {
		return nil, err
	}
	if in.sandboxID, err = findSandbox(in.env, host, cfg, in.sandboxID); err != nil {
		return nil, err
	}
	s := &injectSite{stage: stageOf(host, cfg), aliases: cfg.CDI.Aliases}
	mine := *cfg
	mine.StateDir = s.dir
	s.engine, err = resolve.New(host, &mine, resolve.Options{
		AllowAll: in.node.configFile == "", Once: true, Owner: staging.InjectOwner, Kubelet: askKubelet, SpecDirs: dirs, ForAdministrator: true,
	})
	return s, err
}

// edit gives the text with the edits, after making what they need on the host,
// which undo removes again.
func (in *injection) edit(ctx context.Context, s *injectSite, spec *oci.Config, annotations map[string]string) (text []byte, undo func() error, err error) {
	id, err := in.id()
	if err != nil {
		return nil, nil, err
	}
	names, err := expandAliases(in.devices, s.aliases)
	if err != nil {
		return nil, nil, &deniedError{err}
	}
	req := &resolve.Request{
		HandlerUnknown: true, LabelsUnknown: in.namespace != "",
		SandboxID: in.sandboxID, ContainerID: id, Namespace: in.namespace, Pod: in.pod, Container: in.ctrName,
		Annotations: annotations, CDIDevices: names, Have: oci.Existing(spec.Spec()),
	}
	if in.sandboxID == "" {
		// The environment is partly the image's: it must not make a device of the host
		// come along that nobody asked for.
		req.Have.Env = nil
	}
	if p := spec.Spec().Process; p != nil {
		req.User = &resolve.User{UID: p.User.UID, GID: p.User.GID}
	}
	undo = func() error { return nil }
	plan, err := s.engine.Resolve(ctx, req)
	if err != nil {
		return nil, nil, in.explain(err)
	}
	if plan == nil {
		return in.file.text, undo, nil
	}
	if text, err = spec.Apply(&plan.Set); err != nil {
		return nil, nil, in.explain(err)
	}
	if plan.Staging != nil {
		if undo, err = s.prepare(*plan.Staging); err != nil {
			return nil, nil, in.explain(err)
		}
	}
	in.report(plan)
	return text, undo, nil
}

// explain puts the spec in front of what went wrong, and each thing that did on a
// line of its own.
func (in *injection) explain(err error) error {
	var all *resolve.Error
	if errors.As(err, &all) {
		err = &deniedError{errors.Join(all.Errs...)}
	}
	err = fmt.Errorf("inject into %q: %w", in.file.name, err)
	if in.sandboxID == "" && slices.ContainsFunc(in.annotations, func(a string) bool { return strings.HasPrefix(a, annotation.NetworksKey) }) {
		return &hinted{err: err, hint: "network attachments are those of a pod's sandbox: say with --sandbox-id which"}
	}
	return err
}

// report says what did not come although nothing failed.
func (in *injection) report(plan *resolve.Plan) {
	for _, it := range plan.Items {
		if it.Outcome == resolve.Skipped || it.Outcome == resolve.LeftAlone {
			in.env.say("%s: %s: %s", it.Request, it.Outcome, it.Reason)
		}
		for _, n := range it.Notes {
			in.env.say("%s: %s", it.Request, n)
		}
		if it.Audit != "" {
			in.env.say("%s: mode enforce would refuse it: %s", it.Request, it.Audit)
		}
	}
}

// expandAliases replaces "nvidia=0" by the name it stands for. What has a vendor
// is no alias.
func expandAliases(names []string, aliases map[string]string) ([]string, error) {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name
		if address, _ := wording.PCIAddress(name); address != "" || strings.HasPrefix(name, "/dev/") {
			return nil, fmt.Errorf("--cdi-device: found %s, want the name of a CDI device, vendor.com/class=name (`jackfield devices` lists them): %w",
				quoted(name), errdefs.ErrInvalidArgument)
		}
		alias, device, ok := strings.Cut(name, "=")
		if !ok || alias == "" || strings.Contains(alias, "/") {
			continue
		}
		kind, known := aliases[alias]
		if !known {
			names := slices.Sorted(maps.Keys(aliases))
			hint := "a CDI device is vendor.com/class=name"
			if near := wording.Nearest(alias, names...); near != "" {
				hint = "did you mean " + near + "=" + device + "?"
			}
			return nil, fmt.Errorf("--cdi-device: found %q: %q is no alias of the configuration (cdi.aliases), which has %s; %s: %w",
				name, alias, strings.Join(names, ", "), hint, errdefs.ErrNotFound)
		}
		out[i] = kind + "=" + device
	}
	return out, nil
}

// same tells that the spec is to stay as it is, where it is.
func (f *specFile) same(text []byte) bool { return f.inPlace() && bytes.Equal(text, f.text) }
