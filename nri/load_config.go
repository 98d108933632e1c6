// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
)

// configReadTimeout is how long the start waits for the configuration file.
const configReadTimeout = 3 * time.Second

// loadConfig reads the configuration and compiles its rules. If the file cannot be used, the copy of the last
// good one is in force. If the file does not exist, nothing is granted, and the copy is removed.
func loadConfig(opts *Options, file string, log *logrus.Logger) error {
	var err error
	if opts.ConfigHost, opts.ConfigFile, err = config.Locate(opts.Host, file); err != nil {
		return err
	}
	opts.Config, err = readWithin(opts.ConfigFile, func() (*config.Config, error) {
		return compileConfig(config.Load(opts.ConfigHost, opts.ConfigFile, config.Options{RequireOwner: true}))
	})
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err):
		if opts.ConfigCopy != "" {
			_, err := readWithin(opts.ConfigCopy, func() (struct{}, error) {
				return struct{}{}, config.RemoveCopy(opts.Host, opts.ConfigCopy)
			})
			if err != nil {
				log.WithError(err).Warn("cannot remove the copy of a configuration file that is gone")
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
	kept, kerr := readWithin(opts.ConfigCopy, func() (*config.Config, error) {
		return compileConfig(config.LoadCopy(opts.Host, opts.ConfigCopy, opts.ConfigFile))
	})
	if kerr != nil {
		if !errdefs.IsNotFound(kerr) {
			log.WithError(kerr).Warn("the copy of the last good configuration cannot be used either")
		}
		return err
	}
	opts.Config, opts.ConfigFault = kept, err
	return nil
}

// compileConfig compiles the rules of a loaded configuration.
func compileConfig(cfg *config.Config, err error) (*config.Config, error) {
	if err == nil {
		_, err = cfg.CompilePolicy("")
	}
	return cfg, err
}

// readWithin reads a file. A file system that hangs is an error, and systemd or the kubelet starts the plugin
// again.
func readWithin[T any](file string, read func() (T, error)) (T, error) {
	value, err := deadline.Run(nil, configReadTimeout, read)
	if errors.Is(err, deadline.ErrTimeout) {
		err = errdefs.ErrUnavailable.WithMessage(fmt.Sprintf(
			"read configuration %q: no answer within %v; check the file system mounted there", file, configReadTimeout))
	}
	return value, err
}
