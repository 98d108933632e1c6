// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/status"
)

const doctorLong = `doctor looks at everything on this node that has to be right for containers to get
devices and sockets: the runtime's NRI, the plugin, the configuration, the
directories and files, and what else injects devices. Each finding comes with what
to do about it.

--fix does what is safe: it removes device-info files of sandboxes that are gone for
more than ten minutes, and takes write access to the state directory and to socket
roots away from others than their owner. It restarts nothing, and changes no
configuration.

Exit status: 0 when there is no error (there may be warnings); 1 when there is one.`

// Severities of a diagnosis, with those of findings.
const (
	severityOK   = "ok"
	severityNote = "note"
)

// diagnosis is one thing that the doctor says.
type diagnosis struct {
	Check    string `json:"check"`    // what was looked at
	Severity string `json:"severity"` // ok, note, warning or error
	Found    string `json:"found"`
	Remedy   string `json:"remedy,omitempty"`
	Fixed    bool   `json:"fixed,omitempty"` // by --fix
}

// doctor is one examination.
type doctor struct {
	env           Env
	host          hostfs.Root
	cfg           *config.Config
	node          *status.Node // nil when the daemon does not answer
	runtimeConfig string
	validator     map[string]string // of NRI, in that file; nil: there is no such file
	validatorFile string            // the one that says whether it is on
	crioConfig    string
	found         bool // a runtime's configuration
	nriSocket     string
	pluginDir     string
	fix           bool
	hanging       map[string]bool         // directories that do not answer
	at            *atomic.Pointer[string] // what a check is looking at, where it says so
	snapshot      *cdiregistry.Snapshot
	out           []diagnosis
}

func doctorCommand(env Env) *cobra.Command {
	var (
		n   node
		out output
		d   = doctor{env: env}
	)
	cmd := &cobra.Command{
		Use:   "doctor [--fix]",
		Short: "Look for what keeps containers from getting devices and sockets here",
		Long:  doctorLong,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			var err error
			if d.host, err = n.host(cmd); err != nil {
				return err
			}
			d.examine(cmd.Context(), &n)
			err = out.write(env.Stdout, d.out, func(w io.Writer) error {
				_, err := io.WriteString(w, d.text())
				return err
			})
			return answer(err, !slices.ContainsFunc(d.out, func(f diagnosis) bool { return f.Severity == severityError && !f.Fixed }))
		},
	}
	n.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&d.fix, "fix", false, "do what is safe about it")
	f.StringVar(&d.runtimeConfig, "containerd-config", containerdConfig, "containerd's configuration `file`")
	f.StringVar(&d.crioConfig, "crio-config", crioConfig, "CRI-O's configuration `file`, and its directory FILE.d")
	f.StringVar(&d.nriSocket, "nri-socket", "", "NRI `socket` of the runtime (default what its configuration says)")
	out.flag(cmd)
	return cmd
}

func (d *doctor) say(check, severity, remedy, format string, args ...any) *diagnosis {
	d.out = append(d.out, diagnosis{Check: check, Severity: severity, Found: fmt.Sprintf(format, args...), Remedy: remedy})
	return &d.out[len(d.out)-1]
}

func (d *doctor) ok(check, format string, args ...any) { d.say(check, severityOK, "", format, args...) }

// examine looks at one thing after the other. What comes first is what the rest
// rests upon.
func (d *doctor) examine(ctx context.Context, n *node) {
	read := d.inTime("configuration", doctorFew, func(d *doctor) {
		d.files().look(cmp.Or(n.configFile, config.DefaultPath))
		var err error
		if d.cfg, err = n.config(d.host); err == nil && !notInUse(d.host) {
			_, err = config.LoadAskedOwned(d.host, n.configFile) // as jackfield-nri does
		}
		if err != nil {
			d.faulty(err)
			d.cfg = nil
		}
	})
	valid := read && d.cfg != nil
	if !valid {
		d.cfg = config.Default()
	}
	d.directories()
	if valid {
		d.inTime("configuration", doctorCheck, (*doctor).configuration)
	}
	d.runtime()
	d.inTime("plugin", doctorCheck, func(d *doctor) { d.plugin(ctx) })
	d.inTime("state", doctorCheck, (*doctor).state)
	d.inTime("sockets", doctorCheck, (*doctor).sockets)
	d.inTime("cdi", doctorCheck, func(d *doctor) {
		registry, err := n.registry(d.env, d.host, d.cfg, false)
		if err != nil {
			d.say("cdi", severityError, "", "the CDI directories cannot be read: %v", err)
			return
		}
		d.snapshot = registry.Snapshot()
		d.cdi(d.snapshot)
		if err := registry.Close(); err != nil {
			d.say("cdi", severityWarning, "", "%v", err)
		}
	})
	d.inTime("hooks", doctorCheck, (*doctor).hooks)
	d.inTime("device-info", doctorCheck, (*doctor).deviceInfo)
	if d.snapshot != nil {
		d.inTime("orphans", doctorCheck, func(d *doctor) { d.orphans(d.snapshot) })
		d.inTime("injectors", doctorCheck, func(d *doctor) { d.injectors(d.snapshot) })
	}
	d.inTime("kubelet", doctorCheck, (*doctor).kubelet)
}

// faulty is a configuration that is refused, with all of its faults.
func (d *doctor) faulty(err error) {
	var many interface{ Unwrap() []error }
	var fault *config.Error
	const remedy = "mend it; jackfield-nri keeps what is in force until then, and does not start with it"
	if errors.As(err, &many) && errors.As(err, &fault) {
		for _, e := range many.Unwrap() {
			if errors.As(e, &fault) {
				d.say("configuration", severityError, remedy, "%v", e)
			}
		}
		return
	}
	d.say("configuration", severityError, remedy, "%v", err)
}

func (d *doctor) configuration() {
	name := d.cfg.File()
	if name == "" {
		name = "the defaults (there is no " + config.DefaultPath + ")"
	}
	engine, err := resolve.New(d.host, d.cfg, resolve.Options{Once: true, Kubelet: askKubelet})
	if err != nil {
		d.say("configuration", severityError, "mend the rule", "%v", err)
		return
	}
	if err := engine.Close(); err != nil {
		d.say("configuration", severityWarning, "", "%v", err)
	}
	switch {
	case len(d.cfg.Policy.Rules) == 0:
		d.say("configuration", severityWarning, "write rules: docs/policy-cookbook.md", "%s: there is no policy rule, so nothing is granted to anybody", name)
	case d.cfg.Policy.Mode == config.Audit:
		d.say("configuration", severityWarning, "set policy.mode to enforce once the audit file shows no refusal that you do not want", "%s: policy.mode is audit: nothing is refused", name)
	default:
		d.ok("configuration", "%s: %d policy rules", name, len(d.cfg.Policy.Rules))
	}
}

func (d *doctor) text() string {
	var b strings.Builder
	counts := map[string]int{}
	for _, f := range d.out {
		mark := map[string]string{severityOK: "ok      ", severityNote: "note    ", severityWarning: "warning ", severityError: "ERROR   "}[f.Severity]
		if f.Fixed {
			mark = "fixed   "
		}
		fmt.Fprintf(&b, "%s %-14s %s\n", mark, f.Check, strings.ReplaceAll(plainLines(f.Found), "\n", "\n"+strings.Repeat(" ", 24)))
		if f.Remedy != "" && !f.Fixed {
			fmt.Fprintf(&b, "%s-> %s\n", strings.Repeat(" ", 24), strings.ReplaceAll(plainLines(f.Remedy), "\n", "\n"+strings.Repeat(" ", 27)))
		}
		if !f.Fixed {
			counts[f.Severity]++
		}
	}
	fmt.Fprintf(&b, "\n%s, %s\n", number(counts[severityError], "error"), number(counts[severityWarning], "warning"))
	return b.String()
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// daemonTime bounds the question to the daemon.
const daemonTime = 5 * time.Second
