// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/diag"
)

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
