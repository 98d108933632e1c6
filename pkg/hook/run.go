// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
)

const usage = `usage: jackfield-hook [--config FILE] [--log FILE|syslog] [STAGE]

An OCI hook: it gives the container that the runtime describes on standard input
the devices and sockets that its annotations ask for, as far as the node's policy
grants them. STAGE is precreate, createRuntime, prestart or poststop. Without it,
what is on standard input tells: an OCI configuration is that of precreate, and the
state of a stopped container that of poststop.

`

// Stage is a point in a container's life at which the hook is run.
type Stage string

// The stages. Precreate is one of Podman's alone.
const (
	Precreate     Stage = "precreate"
	CreateRuntime Stage = "createRuntime"
	Prestart      Stage = "prestart"
	Poststop      Stage = "poststop"
)

// Env is what the process is given.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	// Self finds the path of jackfield-hook, for the hook that undoes what precreate made.
	Self func() (string, error)
	// Stranded ends the process with an error; nil for one that does not end with the
	// hook. See live.Options.
	Stranded func(error)
	// Kubelet makes the client that asks the kubelet; nil for a program that hands
	// pods' containers over to one that has it.
	Kubelet func(host hostfs.Root, socket string) (resolve.Kubelet, error)
}

// hook is one run.
type hook struct {
	env         Env
	configFile  string
	logTo       string
	containerID string
	stage       Stage

	host hostfs.Root
	cfg  *config.Config
	log  *logger
	name string // the container, for the log
	// around is hostfs.UserNamespace, which is looked at once.
	around func() (hostfs.Outside, bool)

	input []byte         // standard input
	store *staging.Store // nil until something is made on the host
}

// Run is the program. The error is for a person, and for the runtime to print.
func Run(ctx context.Context, args []string, env Env) error {
	h := &hook{env: env, around: sync.OnceValues(hostfs.UserNamespace)}
	if done, err := h.arguments(args); err != nil || done {
		return err
	}
	var err error
	if h.log, err = openLog(h.logTo); err != nil {
		return err
	}
	defer h.log.close()
	if err := h.run(ctx); err != nil {
		h.log.say("error", h.stage, h.name, err.Error())
		return err
	}
	return nil
}

func (h *hook) run(ctx context.Context) error {
	text, err := hostfs.ReadAtMost(h.env.Stdin, maxInput)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	h.input = text
	if h.stage == "" {
		if h.stage, err = stageOf(text); err != nil {
			return err
		}
	}
	if h.stage == Precreate {
		return h.precreate(ctx, text)
	}
	s, err := parseState(text)
	if err != nil {
		return fmt.Errorf("read the container's state from standard input: %w", err)
	}
	h.name = s.ID
	if h.stage == Poststop {
		return h.poststop(s)
	}
	return h.running(ctx, s)
}

// load reads the node's configuration: the file that was asked for, or the user's own
// for a user who is not root of the host, or the default one when there is one.
func (h *hook) load() error {
	file := h.configFile
	if file != "" && !path.IsAbs(file) {
		return fmt.Errorf("--config: found %q, want an absolute path: %w", file, errdefs.ErrInvalidArgument)
	}
	user, rootless := h.rootless()
	if file == "" && rootless {
		file = h.userConfig(user)
	}
	cfg, err := config.LoadAsked(h.host, file)
	if err != nil {
		return err
	}
	mine := *cfg
	if rootless {
		mine.StateDir = userState(user, cfg)
	}
	mine.StateDir = staging.HookDir(mine.StateDir)
	h.cfg = &mine
	return nil
}

// nriDir is what the NRI plugin of this node mounts into a container.
func (h *hook) nriDir(containerID string) string {
	return h.host.Path(staging.ContainerDir(path.Dir(h.cfg.StateDir), containerID))
}

// resolve works out what the container gets; nil for nothing. follows is as in staged,
// which is looked into for a container that gets sockets.
func (h *hook) resolve(ctx context.Context, req *resolve.Request, follows func() bool) (*resolve.Plan, error) {
	decide := sync.OnceValues(func() (bool, string) { return h.staged(req.ContainerID, follows) })
	plan, err := h.resolveWith(ctx, req, func() bool {
		staged, _ := decide()
		return staged
	})
	if err != nil || plan == nil {
		return nil, err
	}
	if plan.Staging != nil {
		staged, reason := decide()
		if err := h.open(staged); err != nil {
			return nil, err
		}
		if st := h.store.Status(); staged && st.Mode != staging.Mounts {
			if plan, err = h.resolveWith(ctx, req, nil); err != nil || plan == nil {
				return nil, err
			}
			reason = st.Reason
		}
		if reason != "" && plan.Staging != nil {
			h.log.say("info", h.stage, h.name, "sockets are delivered by their directories: "+reason)
		}
	}
	h.report(plan)
	return plan, nil
}

func (h *hook) resolveWith(ctx context.Context, req *resolve.Request, staged func() bool) (*resolve.Plan, error) {
	engine, err := resolve.New(h.host, h.cfg, resolve.Options{Once: true, Owner: staging.HookOwner, Staged: staged, Kubelet: h.env.Kubelet})
	if err != nil {
		return nil, err
	}
	plan, err := engine.Resolve(ctx, req)
	if err := errors.Join(err, engine.Close()); err != nil {
		return nil, err
	}
	return plan, nil
}

// maxLogged is for how many requests of a container the log has lines of their own: their
// author writes as many as an annotation holds.
const maxLogged = 16

// report logs one line for all that is delivered, and one for each of the first requests
// that are not, or of which there is something to say.
func (h *hook) report(plan *resolve.Plan) {
	var injected []string
	lines := 0
	say := func(level, text string) {
		if lines++; lines <= maxLogged {
			h.log.say(level, h.stage, h.name, text)
		}
	}
	for _, it := range plan.Items {
		if it.Audit != "" {
			say("warning", it.Request+": mode enforce would refuse this: "+it.Audit)
		}
		switch it.Outcome {
		case resolve.Injected:
			injected = append(injected, it.Request+" from "+it.File)
			for _, n := range it.Notes {
				say("info", it.Request+": "+n)
			}
		case resolve.LeftAlone:
			say("info", it.Request+": left alone: "+it.Reason)
		case resolve.Skipped:
			say("warning", it.Request+": optional, skipped: "+it.Reason)
		}
	}
	if more := lines - maxLogged; more > 0 {
		h.log.say("warning", h.stage, h.name, fmt.Sprintf("and %d more lines about requests of this container", more))
	}
	if len(injected) > 0 {
		h.log.say("info", h.stage, h.name, "injected "+strings.Join(injected, ", "))
	}
}
