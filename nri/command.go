// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/version"
)

// Command is jackfield-nri, ready to be executed with a context that ends when
// the plugin is to stop.
func Command(getenv func(string) string, stderr io.Writer) *cobra.Command {
	var (
		configFile, root, level, format, probed string

		opts  Options
		least bool
	)
	cmd := &cobra.Command{
		Use:   "jackfield-nri",
		Short: "Give containers the devices and sockets they were granted, as an NRI plugin",
		Long: "jackfield-nri connects to a container runtime's NRI socket and gives each container, at its creation, the CDI devices\n" +
			"and the sockets of its network attachments that the node's policy grants it.\n\n" +
			"Without --config it reads " + config.DefaultPath + ", when there is one. A runtime that starts the plugin itself (from\n" +
			"its plugin directory) hands over the configuration.",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return &UsageError{err}
			}
			return nil
		},
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if probed != "" {
				return probeHealth(cmd.Context(), cmd.OutOrStdout(), probed)
			}
			log, err := newLogger(stderr, level, format)
			if err != nil {
				return err
			}
			if opts.Host, err = hostfs.New(root); err != nil {
				return err
			}
			opts.Inherited = getenv(api.PluginSocketEnvVar) != ""
			if name := getenv(api.PluginNameEnvVar); opts.Inherited && name != "" {
				opts.Name = name
			}
			if opts.SpecDirs, err = cdiregistry.DirsFromEnv(getenv(cdiregistry.DirsEnv)); err != nil {
				return err
			}
			opts.ConfigGiven = configFile != ""
			if err = loadConfig(&opts, configFile, log); err != nil {
				return err
			}
			if least {
				if err := giveUpPrivileges(); err != nil {
					return fmt.Errorf("--least-privilege: %w", err)
				}
			}
			return run(cmd.Context(), opts, getenv(notifySocketEnv), log)
		},
	}
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{err} })
	f := cmd.Flags()
	f.StringVar(&configFile, "config", "", "configuration `file` (default "+config.DefaultPath+", when it exists)")
	f.StringVar(&opts.ConfigName, "config-name", "", "what refusals call the configuration, as \"ConfigMap NAMESPACE/NAME\" (default: its file)")
	f.StringVar(&opts.ConfigCopy, "config-copy", config.DefaultCopyPath, "`file` that keeps the last good configuration, which is in force while the configuration file is faulty when the plugin starts; \"\" keeps none")
	f.StringVar(&opts.Socket, "nri-socket", "", "NRI socket of the runtime (default "+api.DefaultSocketPath+")")
	f.StringVar(&opts.Index, "index", "50", "two digits: the plugin's place in the order of plugins")
	f.StringVar(&opts.Name, "name", "jackfield", "name to register under")
	f.StringVar(&root, "root", "/", "take all host paths below this `directory`")
	f.BoolVar(&least, "least-privilege", false, "give up all capabilities but those that are needed")
	f.StringVar(&probed, "probe", "", "do not run the plugin: ask a running one at this `URL`, as http://127.0.0.1:9480/readyz, print the answer and fail unless it is 200")
	f.StringVar(&level, "log-level", "info", "error, warning, info or debug")
	f.StringVar(&format, "log-format", "text", "text or json")
	return cmd
}

// UsageError is a command line that cannot be understood.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// configTime is how long the configuration file is waited for.
const configTime = 3 * time.Second

// loadConfig reads the configuration and compiles its rules. While a file cannot be used,
// the copy of the last one that could be is in force. A file that does not exist ends what
// it granted: its copy is removed.
func loadConfig(opts *Options, file string, log *logrus.Logger) error {
	var err error
	if opts.ConfigHost, opts.ConfigFile, err = config.Place(opts.Host, file); err != nil {
		return err
	}
	type read struct {
		cfg  *config.Config
		data []byte
	}
	r, err := readInTime(opts.ConfigFile, func() (read, error) {
		data, err := config.ReadOwned(opts.ConfigHost, opts.ConfigFile)
		if err != nil {
			return read{}, err
		}
		cfg, err := parseConfig(data, opts.ConfigFile)
		return read{cfg, data}, err
	})
	switch {
	case err == nil:
		opts.Config, opts.ConfigData = r.cfg, r.data
		return nil
	case errdefs.IsNotFound(err):
		if opts.ConfigCopy != "" {
			_, rerr := readInTime(opts.ConfigCopy, func() (struct{}, error) { return struct{}{}, config.RemoveCopy(opts.Host, opts.ConfigCopy) })
			if rerr != nil {
				log.WithError(rerr).Warn("the last good configuration is kept, and the file that it was copied from is gone")
			}
		}
		if file != "" {
			return err
		}
		opts.Config = config.Default()
		return nil
	case opts.ConfigCopy == "":
		return err
	}
	kept, kerr := readInTime(opts.ConfigCopy, func() (*config.Config, error) {
		cfg, err := config.LoadCopy(opts.Host, opts.ConfigCopy, opts.ConfigFile)
		if err == nil {
			_, err = resolve.Policy(cfg)
		}
		return cfg, err
	})
	if kerr != nil {
		if !errdefs.IsNotFound(kerr) {
			log.WithError(kerr).Warn("the last good configuration cannot be used either")
		}
		return err
	}
	opts.Config, opts.ConfigFault = kept, err
	return nil
}

// parseConfig parses a configuration and compiles its rules.
func parseConfig(data []byte, file string) (*config.Config, error) {
	cfg, err := config.Parse(data, file)
	if err == nil {
		_, err = resolve.Policy(cfg)
	}
	return cfg, err
}

// readInTime reads a file that may be on a file system that hangs: that is an error, and
// whoever starts the plugin tries again.
func readInTime[T any](file string, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(configTime):
		var none T
		return none, fmt.Errorf("read configuration %q: no answer within %v: its file system hangs; see what it is mounted from: %w", file, configTime, errdefs.ErrUnavailable)
	}
}

// freeAfter is when the start is over.
const freeAfter = 2 * time.Second

func run(ctx context.Context, opts Options, notifySocket string, log *logrus.Logger) error {
	p, err := New(opts, log)
	if err != nil {
		return err
	}
	// Whoever reads the log, or does not, holds no container.
	out := newLossyWriter(log.Out, &p.counters.LogDropped)
	defer out.l.close()
	log.SetOutput(out)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	go func() {
		for range hup {
			p.Reopen()
		}
	}()
	freed := time.AfterFunc(freeAfter, trim)
	defer freed.Stop()
	log.WithField("version", version.String()).Info("starting")
	if !opts.Inherited {
		if err := notifyReady(notifySocket); err != nil {
			log.WithError(err).Warn("systemd does not learn that the plugin has started")
		}
	}
	err = p.Run(ctx)
	if cerr := p.Close(); err == nil {
		err = cerr
	}
	return err
}

func newLogger(w io.Writer, level, format string) (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(w)
	l, err := logrus.ParseLevel(level)
	if err != nil || l < logrus.ErrorLevel || l > logrus.DebugLevel {
		return nil, fmt.Errorf("--log-level: found %q, want error, warning, info or debug: %w", level, errdefs.ErrInvalidArgument)
	}
	log.SetLevel(l)
	switch format {
	case "json":
		log.SetFormatter(&logrus.JSONFormatter{})
	case "text":
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: w != io.Writer(os.Stderr)})
	default:
		return nil, fmt.Errorf("--log-format: found %q, want text or json: %w", format, errdefs.ErrInvalidArgument)
	}
	return log, nil
}
