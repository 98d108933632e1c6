// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit/oci"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/outcome"
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/kubelet"
	"github.com/jackfield/jackfield/pkg/cdi"
)

const injectLong = `inject applies a container's requests to its OCI spec, the config.json of a
bundle: all of them, or none. The spec of a --bundle is replaced in one step. That
of --spec goes to standard output, or to the file of --out, which can be the same
file. Unknown fields stay as they are.

--cdi-device names CDI devices (vendor.com/class=name, vendor.com/class=all, or an
alias such as nvidia=0). They replace what the spec has at the same path.
--annotation requests as a pod's annotation does. With --sandbox-id, the sockets
and devices of that pod sandbox's network attachments are injected as well. What
they need on the host is created under an ID, --container-id or one made from the
bundle's path; --remove removes it. A bundle is locked meanwhile, and its config.json
must not be a symlink where another user can write. The spec must be UTF-8 without
duplicate keys. A name that cannot be resolved ends the command with exit status 1, and
the file stays as it was.

Without --config no policy applies: the administrator runs the command. With it,
what the policy refuses is refused; --namespace, --pod and --container describe the
container to the policy.`

// injection is one run of inject.
type injection struct {
	env   Env
	flags hostFlags
	file  specFile

	devices, annotations    []string
	sandboxID, containerID  string
	namespace, pod, ctrName string
	remove                  bool

	localNode
}

func injectCommand(env Env) *cobra.Command {
	in := injection{env: env}
	cmd := &cobra.Command{
		Use:   "inject {--bundle DIR | --spec FILE} [--cdi-device NAME]...",
		Short: "Inject devices and sockets into an OCI spec",
		Long:  injectLong,
		Example: "  jackfield inject --bundle . --cdi-device vendor.com/net=vf0\n" +
			"  runc spec\n" +
			"  jackfield inject --spec config.json --out config.json \\\n" +
			"      --cdi-device nvidia=all\n" +
			"  jackfield inject --remove --bundle .",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.remove {
				return in.runRemove(cmd)
			}
			return in.injectIntoSpec(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.file.bundle, "bundle", "", "`directory` of the OCI bundle whose config.json to change")
	f.StringVar(&in.file.spec, "spec", "", "OCI config.json `file` to read, - for standard input")
	f.StringVar(&in.file.out, "out", "", "`file` to write, - for standard output (default: --bundle's own, or standard "+
		"output)")
	f.StringArrayVar(&in.devices, "cdi-device", nil, "`name` of a CDI device to inject; may be repeated")
	f.StringArrayVar(&in.annotations, "annotation", nil, "a request as the pod annotation `KEY=VALUE` makes it; may be "+
		"repeated")
	f.StringVar(&in.sandboxID, "sandbox-id", "", "`ID` of the pod sandbox whose network attachments to inject")
	f.StringVar(&in.containerID, "container-id", "", "`ID` under which to keep what the container needs on the host")
	addNamespaceFlag(cmd, &in.namespace, "the pod, for the policy of --config")
	f.StringVar(&in.pod, "pod", "", "`name` of the pod, for the policy of --config")
	f.StringVar(&in.ctrName, "container", "", "`name` of the container in the pod")
	f.BoolVar(&in.remove, "remove", false, "remove what was made on the host for a container (--bundle, --container-id) "+
		"or sandbox (--sandbox-id)")
	f.StringVar(&in.flags.configFile, "config", "", "configuration `file` whose policy applies (default: no policy, the "+
		"rest of "+config.DefaultPath+")")
	in.flags.addRootFlag(cmd)
	completeFlag(cmd, "cdi-device", in.flags.completeDevices(env))
	return cmd
}

func (in *injection) injectIntoSpec(cmd *cobra.Command) error {
	if err := in.checkFlags(cmd); err != nil {
		return err
	}
	annotations, err := in.parseAnnotations(cmd)
	if err != nil {
		return err
	}
	if err := in.file.readSpec(in.env.Stdin); err != nil {
		return fmt.Errorf("read OCI spec %q: %w", in.file.name, err)
	}
	defer in.file.close()
	spec, err := oci.ParseConfig(in.file.name, in.file.text)
	if err != nil {
		return fmt.Errorf("read OCI spec: %w", err)
	}
	in.flags.requireOwner = true // the file decides which devices containers get
	if in.localNode, err = in.flags.openNode(cmd); err != nil {
		return err
	}
	engine, err := in.createEngine()
	if err != nil {
		return err
	}
	defer engine.Close()
	text, undo, err := in.editSpec(cmd.Context(), engine, spec, annotations)
	if err != nil {
		return err
	}
	if err := in.file.writeSpec(in.env.Stdout, text); err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

func (in *injection) checkFlags(cmd *cobra.Command) error {
	in.file.resolveStdio()
	// An empty value must not mean a default: it can be an empty variable of a script.
	switch {
	case in.file.bundle == "" && in.file.spec == "":
		return usagef(cmd, "requires --bundle or --spec")
	case in.file.bundle != "" && in.file.spec != "":
		return usagef(cmd, "--bundle and --spec do not go together")
	case cmd.Flags().Changed("out") && in.file.out == "":
		return usagef(cmd, "--out: the name is empty")
	case cmd.Flags().Changed("config") && in.flags.configFile == "":
		// An empty variable in a script must not mean that no policy applies.
		return usagef(cmd, "--config: the name is empty")
	case in.flags.configFile == "" && (in.namespace != "" || in.pod != ""):
		return usagef(cmd, "--namespace and --pod describe the pod to a policy: name its configuration with --config")
	case len(in.devices) == 0 && len(in.annotations) == 0 && in.sandboxID == "":
		return usagef(cmd, "there is nothing to inject: give --cdi-device, --annotation or --sandbox-id")
	}
	return nil
}

// parseAnnotations returns the annotations of the flags.
func (in *injection) parseAnnotations(cmd *cobra.Command) (map[string]string, error) {
	out := make(map[string]string, len(in.annotations))
	for _, a := range in.annotations {
		key, value, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, usagef(cmd, "--annotation: invalid value %q: must be KEY=VALUE", a)
		}
		if _, twice := out[key]; twice {
			return nil, usagef(cmd, "--annotation: %q is there twice", key)
		}
		if in.ctrName == "" && annotation.IsContainerScoped(key) {
			return nil, usagef(cmd, "--annotation: %q is for one container; say with --container which one this is", key)
		}
		out[key] = value
	}
	return out, nil
}

// createEngine creates the engine. The owners of CDI files are checked below a --root as well: their hooks
// are going to run.
func (in *injection) createEngine() (*engine.Engine, error) {
	dirs, err := cdi.DirsFromEnv(in.env.Getenv(cdi.DirsEnv))
	if err != nil {
		return nil, err
	}
	if in.sandboxID, err = in.findSandbox(in.env, in.sandboxID); err != nil {
		return nil, err
	}
	cfg := *in.cfg
	cfg.StateDir = in.storeDir()
	return engine.New(in.host, &cfg, engine.Options{
		AllowAll: in.flags.configFile == "", Once: true, FindSocketDir: staging.SocketDirFinder(in.host, cfg.StateDir,
			staging.InjectOwner), Kubelet: kubelet.QueryPod, Pods: kubelet.QueryPodObject, SpecDirs: dirs, ForAdministrator: true,
	})
}

// editSpec returns the spec with the edits, after creating the files that they need on the host. undo removes
// that again.
func (in *injection) editSpec(ctx context.Context, e *engine.Engine, spec *oci.Config,
	annotations map[string]string) (text []byte, undo func() error, err error) {
	id, err := in.recordID()
	if err != nil {
		return nil, nil, err
	}
	names, err := expandAliases(in.devices, in.cfg.CDI.Aliases)
	if err != nil {
		return nil, nil, &deniedError{err}
	}
	req := &engine.Request{
		HandlerUnknown: true, LabelsUnknown: in.namespace != "",
		SandboxID: in.sandboxID, ContainerID: id, Namespace: in.namespace, Pod: in.pod, Container: in.ctrName,
		Annotations: annotations, CDIDevices: names, Have: oci.Existing(spec.Spec()),
	}
	if in.sandboxID == "" {
		// The environment is partly the image's: it must not select a device of the host that
		// nobody asked for.
		req.Have.Env = nil
	}
	if p := spec.Spec().Process; p != nil {
		req.User = &engine.User{UID: p.User.UID, GID: p.User.GID}
	}
	undo = func() error { return nil }
	plan, err := e.Resolve(ctx, req)
	if err != nil {
		return nil, nil, in.explainError(err)
	}
	if plan == nil {
		return in.file.text, undo, nil
	}
	if text, err = spec.Apply(&plan.Set); err != nil {
		return nil, nil, in.explainError(err)
	}
	if plan.Staging != nil {
		if undo, err = in.prepare(*plan.Staging); err != nil {
			return nil, nil, in.explainError(err)
		}
	}
	in.printNotInjected(plan)
	return text, undo, nil
}

// explainError adds the spec to an error, and puts each failed request on a line of its own.
func (in *injection) explainError(err error) error {
	if all, ok := errors.AsType[*engine.Error](err); ok {
		err = &deniedError{errors.Join(all.Errs...)}
	}
	err = fmt.Errorf("inject into %q: %w", in.file.name, err)
	if in.sandboxID == "" && slices.ContainsFunc(in.annotations, func(a string) bool {
		return strings.HasPrefix(a,
			annotation.NetworksKey)
	}) {
		return &hintedError{err: err, hint: "network attachments are those of a pod's sandbox: say with --sandbox-id which"}
	}
	return err
}

// printNotInjected prints the requests that were not injected although nothing failed, and notes.
func (in *injection) printNotInjected(plan *engine.Plan) {
	lines, _ := outcome.Describe(plan.Items)
	for _, l := range lines {
		if l.Level != "debug" {
			in.env.message("%s", l)
		}
	}
}

// expandAliases replaces "nvidia=0" by the name that it stands for. A name with a vendor is no
// alias.
func expandAliases(names []string, aliases map[string]string) ([]string, error) {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name
		if address, _ := diag.PCIAddress(name); address != "" || strings.HasPrefix(name, "/dev/") {
			return nil, fmt.Errorf("--cdi-device: invalid CDI device name %s: must be vendor.com/class=name (`jackfield "+
				"devices` lists them): %w",
				diag.Quote(name), errdefs.ErrInvalidArgument)
		}
		alias, device, ok := strings.Cut(name, "=")
		if !ok || alias == "" || strings.Contains(alias, "/") {
			continue
		}
		kind, known := aliases[alias]
		if !known {
			return nil, fmt.Errorf("--cdi-device: invalid value %s: %s: %w", diag.Quote(name),
				annotation.UnknownAlias(alias, device, aliases), errdefs.ErrNotFound)
		}
		out[i] = kind + "=" + device
	}
	return out, nil
}
