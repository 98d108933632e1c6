// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/rootless"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/outcome"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// Timeout is the time after which the program exits with ErrTimeout. It replaces a timeout in the
// runtime's configuration of the hook.
const Timeout = 30 * time.Second

// ErrTimeout reports that the hook did not end within Timeout.
var ErrTimeout = fmt.Errorf(
	"timed out after %v: a file system of this host is unresponsive (run \"jackfield doctor\")", Timeout)

// Env holds the parts of the process that a test replaces.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	// Self returns the path of jackfield-hook, which precreate adds to the container as a poststop
	// hook.
	Self func() (string, error)
	// Kubelet queries the kubelet. If it is nil, the hook executes `jackfield oci-hook` for
	// containers of pods.
	Kubelet engine.Kubelet
	// Pods queries the kubelet's Pods API. It can be nil.
	Pods attachment.Pods
}

// hook is one run of the hook.
type hook struct {
	env         Env
	configFile  string
	logTo       string
	containerID string
	stage       Stage

	host   hostfs.Root
	cfg    *config.Config
	log    *logger
	name   string                        // container's name in the log
	userNS func() (hostfs.Outside, bool) // hostfs.UserNamespace, called once

	input []byte         // standard input
	store *staging.Store // nil until the hook creates the first object on the host
}

// Run runs the hook. The runtime prints the error to its user. ExitStatus returns the exit status
// for it.
func Run(ctx context.Context, args []string, env Env) error {
	h := &hook{env: env, userNS: sync.OnceValues(hostfs.UserNamespace)}
	if done, err := h.parseFlags(args); err != nil || done {
		return err
	}
	var err error
	if h.log, err = openLog(h.logTo); err != nil {
		return err
	}
	defer h.log.close()
	if err := h.runStage(ctx); err != nil {
		h.logLine("error", diag.ErrorText(err))
		return err
	}
	return nil
}

func (h *hook) logLine(level, text string) { h.log.writeLine(level, h.stage, h.name, text) }

// runStage runs the hook's stage. Without --stage, the input shows it: Podman's precreate hook gets a
// configuration, and the hooks of the OCI stages get the container's state.
func (h *hook) runStage(ctx context.Context) error {
	text, err := hostfs.ReadAtMost(h.env.Stdin, maxInput)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	h.input = text
	if h.stage == "" {
		if h.stage, err = detectStage(text); err != nil {
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
	return h.createRuntime(ctx, s)
}

// loadConfig reads the node's configuration: the file of --config, otherwise the user's own file
// for a rootless container, otherwise the default file if it exists.
func (h *hook) loadConfig() error {
	file := h.configFile
	if file != "" && !path.IsAbs(file) {
		return usagef("--config: invalid path %q: must be an absolute path", file)
	}
	ns, inside := h.userNS()
	user, isRootless := rootless.User(h.host, ns, inside)
	if file == "" && isRootless {
		file = rootless.ConfigFile(h.host, user)
	}
	loaded, err := config.LoadOrDefault(h.host, file, config.Options{RequireOwner: true})
	if err != nil {
		return err
	}
	cfg := *loaded
	if isRootless {
		cfg.StateDir = rootless.StateDir(user, loaded)
	}
	cfg.StateDir = staging.HookDir(cfg.StateDir)
	h.cfg = &cfg
	return nil
}

// resolve resolves a request. The plan is nil if the container requests nothing. For
// seesLaterMounts see shouldStage.
func (h *hook) resolve(ctx context.Context, req *engine.Request, seesLaterMounts bool) (*engine.Plan, error) {
	staged, reason := h.shouldStage(req.ContainerID, seesLaterMounts)
	plan, err := h.resolveOnce(ctx, req, staged)
	if err != nil || plan == nil {
		return nil, err
	}
	if plan.Staging != nil {
		if err := h.openStore(staged); err != nil {
			return nil, err
		}
		if st := h.store.Status(); staged && st.Mode != staging.ModeMount {
			if plan, err = h.resolveOnce(ctx, req, false); err != nil || plan == nil {
				return nil, err
			}
			reason = st.Detail
		}
		if reason != "" && plan.Staging != nil {
			h.logLine("info", "sockets are delivered by their directories: "+reason)
		}
	}
	h.report(plan)
	return plan, nil
}

// resolveOnce resolves a request with sockets as mounts (staged), or as directories.
func (h *hook) resolveOnce(ctx context.Context, req *engine.Request, staged bool) (*engine.Plan, error) {
	engine, err := engine.New(h.host, h.cfg, engine.Options{
		Once: true, FindSocketDir: staging.SocketDirFinder(h.host, h.cfg.StateDir, staging.HookOwner),
		Staged: func() bool { return staged }, Kubelet: h.env.Kubelet, Pods: h.env.Pods,
	})
	if err != nil {
		return nil, err
	}
	plan, err := engine.Resolve(ctx, req)
	if err := errors.Join(err, engine.Close()); err != nil {
		return nil, err
	}
	return plan, nil
}

// report logs one line for all delivered requests, and one line for each of the first requests that
// are not delivered or have notes.
func (h *hook) report(plan *engine.Plan) {
	lines, injected := outcome.Describe(plan.Items)
	lines = slices.DeleteFunc(lines, func(l outcome.Line) bool { return l.Level == "debug" })
	for _, l := range lines[:min(len(lines), outcome.MaxLines)] {
		h.logLine(l.Level, l.String())
	}
	if more := len(lines) - outcome.MaxLines; more > 0 {
		h.logLine("warning", fmt.Sprintf("and %d more lines about requests of this container", more))
	}
	if len(injected) > 0 {
		h.logLine("info", "injected "+strings.Join(injected, ", "))
	}
}
