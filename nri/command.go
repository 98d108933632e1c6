// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/linequeue"
	"github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/privilege"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Command returns the command jackfield-nri. The plugin stops when the context of the command ends.
func Command(getenv func(string) string, stderr io.Writer) *cobra.Command {
	var line commandLine
	cmd := &cobra.Command{
		Use:   "jackfield-nri",
		Short: "Give containers the devices and sockets they were granted, as an NRI plugin",
		Long: "jackfield-nri connects to a container runtime's NRI socket and gives each container, " +
			"at its creation, the CDI devices\n" +
			"and the sockets of its network attachments that the node's policy grants it.\n\n" +
			"Without --config it reads " + config.DefaultPath + ", when there is one. " +
			"A runtime that starts the plugin itself (from\n" +
			"its plugin directory) hands over the configuration.",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return usageError(err)
			}
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if line.version {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "jackfield-nri", version.String())
				return err
			}
			if line.probed != "" {
				return probeHealth(cmd.Context(), cmd.OutOrStdout(), line.probed)
			}
			if cmd.Flags().NFlag() == 0 && getenv(api.PluginSocketEnvVar) == "" && isTerminal(cmd.InOrStdin()) {
				return &UsageError{errTyped}
			}
			return line.runPlugin(cmd.Context(), getenv, stderr)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	line.addFlags(cmd.Flags())
	return cmd
}

// errTyped is returned to a user who typed the command without flags in a terminal.
var errTyped = errors.New("jackfield-nri is a daemon, which systemd, Kubernetes or the container runtime starts: " +
	"see --help, or set a flag such as --config FILE to run it in this terminal")

// isTerminal reports whether r is a terminal: a user, and not a runtime, has started the program.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// commandLine holds the flags of the command.
type commandLine struct {
	opts                Options
	configFile, root    string
	leastPrivilege      bool
	probed              string // the URL of a running plugin
	version             bool
	logLevel, logFormat string
}

func (l *commandLine) addFlags(f *pflag.FlagSet) {
	f.StringVar(&l.configFile, "config", "", "configuration `file` (default "+config.DefaultPath+", when it exists)")
	f.StringVar(&l.opts.ConfigName, "config-name", "",
		"`name` of the configuration in denials, such as \"ConfigMap NAMESPACE/NAME\" (default: its file)")
	f.StringVar(&l.opts.ConfigCopy, "config-copy", config.DefaultCopyPath,
		"`file` that keeps the last good configuration, "+
			"which is in force while the configuration file is faulty when the plugin starts; \"\" keeps none")
	f.StringVar(&l.opts.Socket, "nri-socket", "", "NRI `socket` of the runtime (default "+api.DefaultSocketPath+")")
	f.StringVar(&l.opts.Index, "index", "50", "the plugin's place in the order of plugins, two digits `NN`")
	f.StringVar(&l.opts.Name, "name", "jackfield", "`name` to register under")
	f.StringVar(&l.root, "root", "/", "take all host paths below this `directory`")
	f.BoolVar(&l.leastPrivilege, "least-privilege", false, "give up all capabilities but those that are needed")
	f.StringVar(&l.probed, "probe", "", "do not run the plugin: ask a running one at this `URL`, "+
		"as http://127.0.0.1:9480/readyz, print the answer and fail unless it is 200")
	// cobra's own flag would link text/template, and with it all exported methods: 2.5 MiB of memory
	// (BenchmarkDaemonIdle).
	f.BoolVarP(&l.version, "version", "v", false, "version for jackfield-nri")
	f.StringVar(&l.logLevel, "log-level", "info", "`level`: error, warning, info or debug")
	f.StringVar(&l.logFormat, "log-format", "text", "`format`: text or json")
}

// runPlugin runs the plugin that the flags configure, until ctx ends.
func (l *commandLine) runPlugin(ctx context.Context, getenv func(string) string, stderr io.Writer) error {
	log, err := newLogger(stderr, l.logLevel, l.logFormat)
	if err != nil {
		return err
	}
	opts := l.opts
	if opts.Host, err = hostfs.New(l.root); err != nil {
		return err
	}
	opts.Inherited = getenv(api.PluginSocketEnvVar) != ""
	if name := getenv(api.PluginNameEnvVar); opts.Inherited && name != "" {
		opts.Name = name
	}
	if index := getenv(api.PluginIdxEnvVar); index != "" {
		opts.Index, opts.IndexInEnv = index, true
	}
	if opts.SpecDirs, err = cdi.DirsFromEnv(getenv(cdi.DirsEnv)); err != nil {
		return err
	}
	opts.ConfigGiven = l.configFile != ""
	if err = loadConfig(&opts, l.configFile, log); err != nil {
		return err
	}
	if l.leastPrivilege {
		if err := privilege.Drop(); err != nil {
			return fmt.Errorf("--least-privilege: %w", err)
		}
	}
	return runPlugin(ctx, opts, getenv(notifySocketEnv), log)
}

// UsageError is an error in the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

func usageError(err error) error {
	return &UsageError{fmt.Errorf("%w (run `jackfield-nri --help`)", err)}
}

// startDone is the time after which the plugin has read all of its files.
const startDone = 2 * time.Second

// runPlugin runs the plugin until ctx ends. SIGHUP re-opens the audit file, for logrotate.
func runPlugin(ctx context.Context, opts Options, notifySocket string, log *logrus.Logger) error {
	p, err := New(opts, log)
	if err != nil {
		return err
	}
	// Neither a slow reader of the log nor its format delays a container.
	stderr := log.Out
	lines := linequeue.New(func(line []byte) { _, _ = stderr.Write(line) }, func() { p.counters.LogDropped.Add(1) })
	defer lines.Close()
	log.SetOutput(io.Discard)
	log.SetFormatter(&queuedFormatter{lines, log.Formatter})
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	go func() {
		for range hup {
			p.Reopen()
		}
	}()
	// Return the memory that only the start needs.
	freed := time.AfterFunc(startDone, debug.FreeOSMemory)
	defer freed.Stop()
	log.WithFields(startFields(p)).Info("starting")
	if !opts.Inherited {
		if err := notifyReady(notifySocket); err != nil {
			log.WithError(err).Warn("cannot notify systemd that the plugin has started")
		}
	}
	return cmp.Or(p.Run(ctx), p.Close())
}

// startFields are the version and, unless the runtime hands over the configuration, its file, rules and roots.
func startFields(p *Plugin) logrus.Fields {
	fields := logrus.Fields{"version": version.String()}
	if current := p.config.core.Load(); current != nil {
		fields["config"] = cmp.Or(current.cfg.File(), "defaults")
		fields["rules"] = len(current.cfg.Policy.Rules)
		fields["roots"] = current.cfg.Sockets.Roots
	}
	return fields
}

// newLogger returns the logger that the flags configure.
func newLogger(w io.Writer, level, format string) (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(w)
	log.AddHook(plainErrors{})
	l, err := logrus.ParseLevel(level)
	if err != nil || l < logrus.ErrorLevel || l > logrus.DebugLevel {
		return nil, usageError(fmt.Errorf("--log-level: invalid value %q: must be error, warning, info or debug: %w",
			level, errdefs.ErrInvalidArgument))
	}
	log.SetLevel(l)
	switch format {
	case "json":
		log.SetFormatter(&logrus.JSONFormatter{})
	case "text":
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: w != io.Writer(os.Stderr)})
	default:
		return nil, usageError(fmt.Errorf("--log-format: invalid value %q: must be text or json: %w",
			format, errdefs.ErrInvalidArgument))
	}
	return log, nil
}

// plainErrors is a hook that logs the text of an error without its sentinel.
type plainErrors struct{}

// Levels implements logrus.Hook.
func (plainErrors) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (plainErrors) Fire(e *logrus.Entry) error {
	if err, ok := e.Data[logrus.ErrorKey].(error); ok && err != nil {
		e.Data[logrus.ErrorKey] = diag.ErrorText(err)
	}
	return nil
}

const (
	probeTimeout  = 10 * time.Second
	maxProbeReply = 64 << 10
)

// probeHealth requests url from a running plugin and copies the response to out. The probes of the
// DaemonSet run it in the pod, because the kubelet cannot connect to an address that only the pod reaches.
func probeHealth(ctx context.Context, out io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("--probe: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	// The transport ignores the environment's proxies, because the address belongs to the pod.
	reply, err := (&http.Client{Transport: &http.Transport{}}).Do(request)
	if err != nil {
		return fmt.Errorf("--probe: %w", err)
	}
	defer reply.Body.Close()
	if _, err := io.Copy(out, io.LimitReader(reply.Body, maxProbeReply)); err != nil {
		return fmt.Errorf("--probe: read the answer of %s: %w", url, err)
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("--probe: %s returned status %s: must be 200: %w", url, reply.Status, errdefs.ErrUnavailable)
	}
	return nil
}

// notifySocketEnv names the socket on which systemd waits for a unit of Type=notify.
const notifySocketEnv = "NOTIFY_SOCKET"

// notifyReady sends READY=1 to systemd, sd_notify(3). Without a socket it does nothing.
func notifyReady(socket string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("READY=1")); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
