// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/report/status"
)

// statusTimeout bounds the request to the daemon.
const statusTimeout = 10 * time.Second

// statusQuery is a question to the daemon about all containers, or about one pod or container.
type statusQuery struct {
	env       Env
	host      hostFlags
	out       output
	namespace string // of the pods to show; "" for all
	name      string // of the pod or container to show; "" for all
	watch     bool
	interval  time.Duration
	wait      time.Duration // for the daemon to run with the configuration; 0 not to wait
}

func (q *statusQuery) addFlags(cmd *cobra.Command, formats ...string) {
	q.host.addFlags(cmd)
	q.out.addFlag(cmd, formats...)
	addNamespaceFlag(cmd, &q.namespace, "the pods to show (default: all)")
	addWatchFlag(cmd, &q.watch, "the whole output again, on a terminal in place")
	cmd.Flags().DurationVar(&q.interval, "interval", 2*time.Second, "`DURATION` between two requests of --watch")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return q.host.completeFromStatus(podsAndContainers)(cmd, args, word)
	}
}

// run requests the daemon's status and prints the result of answer: a value for -o json and yaml, and a text.
func (q *statusQuery) run(cmd *cobra.Command, args []string, answer func(*status.Node) (any, string, error)) error {
	if q.interval <= 0 {
		return usagef(cmd, "--interval: invalid value %v: must be a positive duration such as 2s", q.interval)
	}
	if len(args) > 0 {
		q.name = args[0]
	}
	host, err := q.host.openHost(cmd)
	if err != nil {
		return err
	}
	if _, err := q.host.loadConfig(host); err != nil {
		q.env.message("warning: %v", err)
	}
	ask := func() (any, string, error) {
		ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
		defer cancel()
		node, err := status.Find(ctx, host, config.StateDirs(host, q.host.configFile))
		if err != nil {
			return nil, "", &hintedError{err: err, hint: "is jackfield-nri running? On a host with Podman alone, it need not " +
				"run; run `jackfield doctor`"}
		}
		q.removeOthers(node)
		return answer(node)
	}
	if q.wait > 0 {
		if err := q.awaitConfig(cmd.Context(), host); err != nil {
			return err
		}
	}
	if q.watch {
		return q.out.watchResult(cmd.Context(), q.env, q.interval, ask)
	}
	value, text, err := ask()
	if err != nil && !errors.Is(err, errAnswerNo) {
		return err
	}
	return cmp.Or(q.out.writeResult(q.env, value, func() string { return text }), err)
}

// awaitConfig waits until the daemon runs with the configuration file. The error is errAnswerNo after a message.
func (q *statusQuery) awaitConfig(ctx context.Context, host hostfs.Root) error {
	cfg, err := q.host.loadConfig(host)
	if err == nil {
		_, err = cfg.CompilePolicy("")
	}
	if err != nil {
		q.env.message("jackfield-nri rejects the configuration: %v", err)
		return errAnswerNo
	}
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	var reason error // of the last attempt that the end of the time did not interrupt
	isAny := func(error) bool { return true }
	err = retry.Every(q.interval).Retry(ctx, isAny, func() error {
		node, err := status.Find(ctx, host, config.StateDirs(host, q.host.configFile))
		switch {
		case err == nil && node.Config.Text == cfg.Text():
			return nil
		case err == nil && node.Config.Error != "":
			err = errors.New(node.Config.Error)
		case err == nil:
			err = fmt.Errorf("in force is %s of %s", cmp.Or(node.Config.File, "the default"),
				node.Config.Since.Format(time.RFC3339))
		}
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		return err
	})
	if err != nil {
		q.env.message("jackfield-nri does not run with %s after %v: %v", cmp.Or(cfg.File(), "the defaults"), q.wait, reason)
		return errAnswerNo
	}
	return nil
}

// message prints a message, except where the output is printed again and again.
func (q *statusQuery) message(format string, args ...any) {
	if !q.watch {
		q.env.message(format, args...)
	}
}

// atMostOnePod accepts the name of a pod or container, or nothing.
func atMostOnePod(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef(cmd, "%sunexpected argument %q: must be one pod or container", commandPrefix(cmd), args[1])
	}
	if len(args) == 1 && args[0] == "" {
		return usagef(cmd, "%sthe pod or container is empty; leave it out for all of them", commandPrefix(cmd))
	}
	return nil
}

func statusCommand(env Env) *cobra.Command {
	q := statusQuery{env: env}
	cmd := &cobra.Command{
		Use:   "status [POD|CONTAINER]",
		Short: "Show what the daemon injected into running containers",
		Long: "status asks jackfield-nri, over a socket that only root can use, what it injected\n" +
			"into which running container, from which file, by which rule. POD is\n" +
			"NAMESPACE/NAME, or NAME; CONTAINER is a container's name, or an ID or its\n" +
			"beginning. The exit status is 1 when the daemon has no such pod or container and,\n" +
			"without an argument, when it is not registered with a runtime or rejects a newer\n" +
			"configuration; 3 when it does not answer.\n" +
			"\n" +
			"With --wait, status waits until jackfield-nri runs with the configuration file: a\n" +
			"changed ConfigMap takes a minute or two to reach the node. The exit status is 1 when\n" +
			"jackfield-nri rejects the file, or has not read it in time.",
		Args: atMostOnePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			return q.run(cmd, args, func(node *status.Node) (any, string, error) {
				var err error
				if !node.Registered {
					q.message("jackfield-nri is not registered with a runtime: new containers start without devices and sockets")
					q.message("hint: `jackfield doctor` finds out why")
					if q.isWhole() {
						err = errAnswerNo
					}
				}
				if why := node.Runtime.Limitation(); why != "" && q.isWhole() {
					q.message("jackfield-nri is registered with %s: %s", node.Runtime.Name, why)
					err = errAnswerNo
				}
				if node.Config.Error != "" && q.isWhole() {
					q.message("jackfield-nri rejects the newer configuration; `jackfield doctor` says what to do")
					err = errAnswerNo
				}
				if !q.isWhole() && len(node.Containers)+len(node.Missed) == 0 {
					q.message("nothing is injected into a running container of %s", q.title())
					err = errAnswerNo
				}
				return node, statusText(node, q.isWhole()), err
			})
		},
	}
	q.addFlags(cmd)
	cmd.Flags().DurationVar(&q.wait, "wait", 0, "wait at most this `DURATION` until jackfield-nri runs with the "+
		"configuration file")
	return cmd
}

// isWhole reports whether the question is about the daemon and all containers.
func (q *statusQuery) isWhole() bool { return q.name == "" && q.namespace == "" }

// title names the pods or containers of the question.
func (q *statusQuery) title() string {
	switch {
	case q.namespace == "":
		return plain(q.name)
	case q.name == "":
		return "namespace " + plain(q.namespace)
	}
	return plain(q.name) + " in namespace " + plain(q.namespace)
}

// removeOthers removes the containers and sockets from a status that the question is not about.
func (q *statusQuery) removeOthers(n *status.Node) {
	isOther := func(namespace, pod, container, id string) bool {
		if q.namespace != "" && namespace != q.namespace {
			return true
		}
		return q.name != "" && namespace+"/"+pod != q.name && pod != q.name && container != q.name &&
			!strings.HasPrefix(id, q.name)
	}
	isOtherContainer := func(c status.Container) bool { return isOther(c.Namespace, c.Pod, c.Container, c.ContainerID) }
	n.Containers = slices.DeleteFunc(n.Containers, isOtherContainer)
	n.Missed = slices.DeleteFunc(n.Missed, isOtherContainer)
	isOtherDevice := func(d *status.LostDevice) bool { return isOther(d.Namespace, d.Pod, d.Container, d.ContainerID) }
	n.ReusedNumbers = slices.DeleteFunc(n.ReusedNumbers,
		func(r status.ReusedNumber) bool { return isOtherDevice(&r.LostDevice) })
	n.RemovedDevices = slices.DeleteFunc(n.RemovedDevices, func(d status.LostDevice) bool { return isOtherDevice(&d) })
	n.Sockets = slices.DeleteFunc(n.Sockets, func(s status.PlacedSocket) bool {
		return isOther(s.Namespace, s.Pod,
			s.Container, s.ContainerID)
	})
}

func statusText(n *status.Node, whole bool) string {
	var sections []string
	if whole {
		sections = append(sections, daemonText(n))
	}
	for i := range n.Containers {
		sections = append(sections, containerText(&n.Containers[i]))
	}
	for i := range n.Missed {
		sections = append(sections, missedText(&n.Missed[i]))
	}
	return strings.Join(sections, "\n")
}

// daemonText is about the daemon itself, and counts the rest.
func daemonText(n *status.Node) string {
	var t table
	t.addRow("jackfield-nri", fmt.Sprintf("%s, process %d, since %s", n.Version, n.PID, n.Started.Format(time.RFC3339)))
	runtime := ""
	if r := n.Runtime; r != nil {
		runtime = " with " + r.Name + " " + r.Version
		if r.NRI != "" {
			runtime += " (NRI " + r.NRI + ")"
		}
	}
	state, color := "registered"+runtime, green
	if !n.Registered {
		if runtime != "" {
			runtime = ", last" + runtime
		}
		state, color = "NOT REGISTERED"+runtime+": new containers start without devices and sockets", red
	}
	if why := n.Runtime.Limitation(); why != "" {
		state, color = state+": "+why, red
	}
	t.addRow("runtime", state)
	t.colorCell(1, color)
	file := cmp.Or(n.Config.File, "the defaults")
	t.addRow("configuration", fmt.Sprintf("%s, generation %d, since %s", file, n.Config.Generation,
		n.Config.Since.Format(time.RFC3339)))
	if n.Config.Error != "" {
		t.addRow("rejected", "a newer configuration is rejected: "+n.Config.Error)
		t.colorCell(1, red)
	}
	t.addRow("containers", fmt.Sprintf("%d running with injected devices or sockets", len(n.Containers)))
	if len(n.Missed) > 0 {
		t.addRow("missed", fmt.Sprintf("%d running lack what they requested: they were created while jackfield-nri was not "+
			"connected", len(n.Missed)))
	}
	for i := range n.ReusedNumbers {
		r := &n.ReusedNumbers[i]
		t.addRow("reused", fmt.Sprintf("%s can open %s through %s (%s), which it was given for %s", r.Title(), r.Now, r.Path,
			r.Number, r.Granted))
		t.colorCell(1, red)
	}
	for i := range n.RemovedDevices {
		t.addRow("removed", n.RemovedDevices[i].RemovedText()+"; delete the pod")
		t.colorCell(1, red)
	}
	if n.SocketsError == "" {
		t.addRow("sockets", fmt.Sprintf("%d; `jackfield sockets` lists them", len(n.Sockets)))
	} else {
		t.addRow("sockets", "not known: "+n.SocketsError)
	}
	for i := range n.Vswitches {
		v := &n.Vswitches[i]
		t.addRow("vswitch "+v.Name, vswitchState(v))
		if v.Checked && (!v.Answering || v.Missing > 0) {
			t.colorCell(1, red)
		}
		if v.Error != "" {
			t.addRow("", v.Error)
		}
	}
	return t.formatText("")
}

// vswitchState returns whether a vswitch answers, and the state of its ports.
func vswitchState(v *vswitch.Status) string {
	switch {
	case !v.Checked:
		return "not checked yet"
	case !v.Answering:
		return "UNREACHABLE at " + v.Endpoint
	}
	text := diag.Count(v.Ports, "port") + " of running pods"
	if v.Missing > 0 {
		text += fmt.Sprintf(", %d MISSING", v.Missing)
	}
	if v.Recreated > 0 {
		text += fmt.Sprintf(", %d re-created", v.Recreated)
	}
	return text
}

func containerText(c *status.Container) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  since %s\n", plain(c.Title()), c.Since.Format(time.RFC3339))
	for _, r := range c.Requests {
		fmt.Fprintf(&b, "\n  %s: %s\n", plain(r.Request), outcomeText(engine.Outcome(r.Outcome)))
		var t table
		for _, line := range [][2]string{{"asked", r.From}, {"file", r.File}, {"rule", r.Rule}, {"why", r.Reason},
			{"audit", r.Audit}} {
			if line[1] != "" && (line[0] != "asked" || line[1] != r.File) {
				t.addRow(line[0], line[1])
			}
		}
		for _, e := range c.Edits {
			if e.Request == r.Request {
				t.addRow(e.Kind, strings.TrimPrefix(e.What, e.Kind+" "))
			}
		}
		b.WriteString(t.formatText("    "))
	}
	var t table
	for _, e := range c.Edits {
		if !slices.ContainsFunc(c.Requests, func(r status.Request) bool { return r.Request == e.Request }) {
			t.addRow(e.Kind, strings.TrimPrefix(e.What, e.Kind+" "))
		}
	}
	if len(t.rows) > 0 {
		b.WriteString("\n  For the application to find them\n")
		b.WriteString(t.formatText("    "))
	}
	if c.More != "" {
		fmt.Fprintf(&b, "\n  left out: %s\n", plain(c.More))
	}
	return b.String()
}

// missedText returns the text of a container without its requested devices, with the outcome of its requests now.
func missedText(c *status.Container) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", plain(c.Title()), colored(yellow, "lacks what it requested"))
	for _, r := range c.Requests {
		state := outcomeText(engine.Outcome(r.Outcome))
		if engine.Outcome(r.Outcome) == engine.Injected {
			state = "would be injected now"
		}
		fmt.Fprintf(&b, "\n  %s: %s\n", plain(r.Request), state)
		if r.Reason != "" {
			fmt.Fprintf(&b, "    why  %s\n", plain(r.Reason))
		}
	}
	return b.String()
}
