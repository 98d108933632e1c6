// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/status"
)

// statusTime bounds the question to the daemon.
const statusTime = 10 * time.Second

func statusCommand(env Env) *cobra.Command {
	var (
		n   node
		out output
	)
	cmd := &cobra.Command{
		Use:   "status [POD|CONTAINER]",
		Short: "Show what the daemon put into which running container",
		Long: "Asks jackfield-nri, over a socket that only root can use, what it put into which running container, from which file, by\n" +
			"which rule. POD is NAMESPACE/NAME, or NAME; CONTAINER is a container's name, or an ID or how it begins. The exit status is\n" +
			"1 when the daemon has nothing of what is asked for, and, without an argument, when it is not registered with a runtime; 3 when it does not answer.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef(cmd, "%swant one pod or container; found %q beside it", inCommand(cmd), args[1])
			}
			if len(args) == 1 && args[0] == "" {
				return usagef(cmd, "%sthe pod or container is empty; leave it out for all of them", inCommand(cmd))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			host, cfg, err := n.load(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTime)
			defer cancel()
			node, err := status.Get(ctx, host, cfg.StateDir)
			if err != nil {
				return &hinted{err: err, hint: "is jackfield-nri running? `jackfield doctor` looks for what is wrong"}
			}
			if len(args) > 0 {
				node.Containers = matching(node.Containers, args[0])
				node.Missed = matching(node.Missed, args[0])
			}
			err = out.write(env.Stdout, node, func(w io.Writer) error {
				_, err := io.WriteString(w, statusText(node, len(args) == 0))
				return err
			})
			if err == nil && !node.Registered {
				env.say("jackfield-nri is not registered with a runtime: new containers come up without devices and sockets")
				env.say("hint: `jackfield doctor` finds out why")
				if len(args) == 0 {
					return errAnswerNo
				}
			}
			if err == nil && len(args) > 0 && len(node.Containers)+len(node.Missed) == 0 {
				env.say("no running container of %s was given anything", plain(args[0]))
				return errAnswerNo
			}
			return err
		},
	}
	n.flags(cmd)
	out.flag(cmd)
	cmd.ValidArgsFunction = n.completeContainers
	return cmd
}

// matching are the containers of a pod, or the container, that a word means.
func matching(cs []status.Container, word string) []status.Container {
	out := []status.Container{}
	for _, c := range cs {
		if c.Namespace+"/"+c.Pod == word || c.Pod == word || c.Container == word || strings.HasPrefix(c.ContainerID, word) {
			out = append(out, c)
		}
	}
	return out
}

func statusText(n *status.Node, whole bool) string {
	var b strings.Builder
	if whole {
		var t table
		t.add("jackfield-nri", n.Version+", process "+fmt.Sprint(n.PID)+", since "+n.Started.Format(time.RFC3339))
		runtime := ""
		if r := n.Runtime; r != nil {
			runtime = " with " + r.Name + " " + r.Version
			if r.NRI != "" {
				runtime += " (NRI " + r.NRI + ")"
			}
		}
		switch {
		case n.Registered:
			t.add("runtime", "registered"+runtime)
		case runtime != "":
			t.add("runtime", "NOT REGISTERED, last"+runtime+": new containers come up without devices and sockets")
		default:
			t.add("runtime", "NOT REGISTERED: new containers come up without devices and sockets")
		}
		file := n.Config.File
		if file == "" {
			file = "the defaults"
		}
		t.add("configuration", fmt.Sprintf("%s, generation %d, since %s", file, n.Config.Generation, n.Config.Since.Format(time.RFC3339)))
		if n.Config.Error != "" {
			t.add("", "a newer one is refused: "+n.Config.Error)
		}
		t.add("containers", fmt.Sprintf("%d that run were given something", len(n.Containers)))
		if len(n.Missed) > 0 {
			t.add("", fmt.Sprintf("%d that run lack what they asked for: they were created while jackfield-nri was not connected", len(n.Missed)))
		}
		t.write(&b, "")
	}
	for i, c := range n.Containers {
		if whole || i > 0 {
			b.WriteByte('\n')
		}
		containerText(&b, &c)
	}
	for i := range n.Missed {
		if whole || i > 0 || len(n.Containers) > 0 {
			b.WriteByte('\n')
		}
		missedText(&b, &n.Missed[i])
	}
	return b.String()
}

func containerText(b *strings.Builder, c *status.Container) {
	fmt.Fprintf(b, "%s  since %s\n", containerTitle(c), c.Since.Format(time.RFC3339))
	done := make([]bool, len(c.Edits))
	for _, r := range c.Requests {
		fmt.Fprintf(b, "\n  %s: %s\n", plain(r.Request), plain(r.Outcome))
		var t table
		for _, line := range [][2]string{{"asked", r.From}, {"file", r.File}, {"rule", r.Rule}, {"why", r.Reason}, {"audit", r.Audit}} {
			if line[1] != "" && (line[0] != "asked" || line[1] != r.File) {
				t.add(line[0], line[1])
			}
		}
		for i, e := range c.Edits {
			if e.Request == r.Request {
				done[i] = true
				t.add(splitEdit(e.What))
			}
		}
		t.write(b, "    ")
	}
	var t table
	for i, e := range c.Edits {
		if !done[i] {
			t.add(splitEdit(e.What))
		}
	}
	if len(t.rows) > 0 {
		b.WriteString("\n  For the application to find them\n")
		t.write(b, "    ")
	}
	if c.More != "" {
		fmt.Fprintf(b, "\n  left out: %s\n", plain(c.More))
	}
}

// missedText is a container that lacks what it asked for, and what would become of its
// requests now.
func missedText(b *strings.Builder, c *status.Container) {
	fmt.Fprintf(b, "%s  lacks what it asked for\n", containerTitle(c))
	for _, r := range c.Requests {
		state := r.Outcome
		if state == string(resolve.Injected) {
			state = "would be injected now"
		}
		fmt.Fprintf(b, "\n  %s: %s\n", plain(r.Request), plain(state))
		if r.Reason != "" {
			fmt.Fprintf(b, "    why  %s\n", plain(r.Reason))
		}
	}
}

func containerTitle(c *status.Container) string {
	return plain(strings.Trim(c.Namespace+"/"+c.Pod+"/"+c.Container, "/")) + "  " + plain(c.ContainerID)
}

// splitEdit takes an edit's kind apart from the rest.
func splitEdit(what string) (kind, rest string) {
	kind, rest, _ = strings.Cut(what, " ")
	return kind, rest
}
