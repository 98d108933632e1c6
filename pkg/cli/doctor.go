// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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

const doctorLong = `doctor checks everything on this node that has to be right for containers to get
devices and sockets: the runtime's NRI, the plugin, the configuration, the
directories and files, and what else injects devices. Each finding comes with what
to do about it. "unknown" marks what doctor could not find out, mostly for want of
root's rights.

Without --config, doctor asks jackfield-nri which configuration it runs with, and
checks that one.

--fix does what is safe: it removes device-info files of sandboxes that are gone for
more than ten minutes, and removes the write access of others than the owner from
the state directory and from socket roots. It restarts nothing, and changes no
configuration.

Exit status: 0 when there is no error (there may be warnings); 1 when there is one;
3 when there is none, and something is unknown.`

// Severities of a diagnosis, with those of findings.
const (
	severityOK      = "ok"
	severityNote    = "note"
	severityUnknown = "unknown" // doctor could not find out
)

// asRoot is the remedy for what only root can read.
const asRoot = "run doctor as root"

// diagnosis is one thing that the doctor says.
type diagnosis struct {
	Check    string `json:"check"`    // what was looked at
	Severity string `json:"severity"` // ok, note, warning, unknown or error
	Found    string `json:"found"`
	Remedy   string `json:"remedy,omitempty"`
	Fixed    bool   `json:"fixed,omitempty"` // by --fix
}

// doctor is one examination.
type doctor struct {
	env           Env
	host          hostfs.Root
	cfg           *config.Config // that is checked
	cfgName       string         // of that, for messages
	node          *status.Node   // nil when the daemon does not answer
	nodeErr       error          // why it does not
	runtimeConfig string
	crioConfig    string
	validators    map[string]validatorValues // by the runtime's name; none where its configuration was not read
	found         bool                       // a runtime's configuration
	nriSocket     string
	nriFault      bool // an error of that is reported
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
				_, err := io.WriteString(w, d.text(terminalWidth(env.Stdout)))
				return err
			})
			switch has := func(severity string) bool {
				return slices.ContainsFunc(d.out, func(f diagnosis) bool { return f.Severity == severity && !f.Fixed })
			}; {
			case err != nil:
				return err
			case has(severityError):
				return errAnswerNo
			case has(severityUnknown):
				return errNoAnswer
			}
			return nil
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
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = errorText(err)
		}
	}
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
	d.inTime("plugin", doctorFew, func(d *doctor) { d.ask(ctx) })
	valid = d.chooseConfig(n.configFile != "", valid)
	d.directories()
	if valid {
		d.inTime("configuration", doctorCheck, (*doctor).configuration)
	}
	d.runtime()
	d.inTime("plugin", doctorCheck, (*doctor).plugin)
	d.missed()
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
		d.inTime("netDevices", doctorCheck, func(d *doctor) { d.netDevices(d.snapshot) })
	}
	d.inTime("kubelet", doctorCheck, (*doctor).kubelet)
}

// faulty is a configuration that is refused, with all of its faults.
func (d *doctor) faulty(err error) {
	var many interface{ Unwrap() []error }
	var fault *config.Error
	const remedy = "correct it; until then the configuration that was last in force stays so, also after a restart of jackfield-nri"
	if errors.As(err, &many) && errors.As(err, &fault) {
		for _, e := range many.Unwrap() {
			if errors.As(e, &fault) {
				d.say("configuration", severityError, remedy, "%v", e)
			}
		}
		return
	}
	if errors.Is(err, os.ErrPermission) {
		d.say("configuration", severityUnknown, asRoot, "%v", err)
		return
	}
	d.say("configuration", severityError, remedy, "%v", err)
}

// chooseConfig settles which configuration is checked, and reports whether it is valid: the one that was asked for, or, where none was, the one
// that the daemon runs with, which need not be the file of this host.
func (d *doctor) chooseConfig(asked, valid bool) bool {
	d.cfgName = d.cfg.File()
	if d.cfgName == "" {
		d.cfgName = "the defaults (there is no " + config.DefaultPath + ")"
	}
	if d.node == nil {
		return valid
	}
	running, err := config.Parse([]byte(d.node.Config.Text), d.node.Config.File)
	if err != nil || d.node.Config.Text == "" && d.node.Config.File != "" {
		return valid // a daemon of another version
	}
	if valid && running.Text() == d.cfg.Text() {
		return true
	}
	name := fmt.Sprintf("the defaults, with which jackfield-nri (process %d) runs", d.node.PID)
	if d.node.Config.File != "" {
		name = fmt.Sprintf("%s, as jackfield-nri (process %d) runs with it", d.node.Config.File, d.node.PID)
	}
	switch {
	case asked:
		if valid {
			d.say("configuration", severityNote, "leave out --config to check that one", "%s is not the configuration in force: that is %s", d.cfgName, name)
		}
		return valid
	case valid && d.cfg.File() != "":
		d.say("configuration", severityNote, "", "%s of this host is not the configuration in force, and is not checked further", d.cfgName)
	}
	d.cfg, d.cfgName = running, name
	return true
}

func (d *doctor) configuration() {
	name := d.cfgName
	engine, err := resolve.New(d.host, d.cfg, resolve.Options{Once: true, Kubelet: askKubelet})
	if err != nil {
		d.say("configuration", severityError, "correct the rule", "%v", err)
		return
	}
	if err := engine.Close(); err != nil {
		d.say("configuration", severityWarning, "", "%v", err)
	}
	switch {
	case d.cfg.File() == "" && d.node == nil:
		d.say("configuration", severityNote, "write rules: `man jackfield.yaml`; or see the pod's log, where jackfield-nri is in a pod and has a configuration of its own",
			"there is no %s, and jackfield-nri does not say with which configuration it runs; the defaults grant nothing to anybody", config.DefaultPath)
	case len(d.cfg.Policy.Rules) == 0:
		d.say("configuration", severityWarning, "write rules: `man jackfield.yaml`", "%s: there is no policy rule, so nothing is granted to anybody", name)
	case d.cfg.Policy.Mode == config.Audit:
		d.say("configuration", severityWarning, "set policy.mode to enforce once the audit file shows no refusal that you do not want", "%s: policy.mode is audit: nothing is refused", name)
	default:
		d.ok("configuration", "%s: %s", name, number(len(d.cfg.Policy.Rules), "policy rule"))
	}
}

// Columns of a finding's text.
const (
	foundColumn  = 24
	remedyColumn = foundColumn + len("-> ")
)

// text is the findings for people. Lines are at most width wide, where they can be broken; 0 is any width.
func (d *doctor) text(width int) string {
	var b strings.Builder
	counts := map[string]int{}
	for _, f := range d.out {
		mark := map[string]string{severityOK: "ok", severityNote: "note", severityWarning: "warning", severityUnknown: "unknown", severityError: "ERROR"}[f.Severity]
		if f.Fixed {
			mark = "fixed"
		}
		fmt.Fprintf(&b, "%-8s %-14s %s\n", mark, f.Check, wrapText(plainLines(f.Found), width, foundColumn))
		if f.Remedy != "" && !f.Fixed {
			fmt.Fprintf(&b, "%s-> %s\n", strings.Repeat(" ", foundColumn), wrapText(plainLines(f.Remedy), width, remedyColumn))
		}
		if !f.Fixed {
			counts[f.Severity]++
		}
	}
	fmt.Fprintf(&b, "\n%s, %s", number(counts[severityError], "error"), number(counts[severityWarning], "warning"))
	if n := counts[severityUnknown]; n > 0 {
		fmt.Fprintf(&b, ", %d unknown", n)
	}
	b.WriteByte('\n')
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
