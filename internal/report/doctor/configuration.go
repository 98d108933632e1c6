// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// readConfig reads Jackfield's configuration. It checks the file's owner like jackfield-nri.
func readConfig(_ context.Context, n *node) (found findings) {
	n.configFiles().Reading(n.configFile())
	cfg, err := config.LoadOrDefault(n.Host, n.ConfigFile, config.Options{RequireOwner: true})
	if err == nil {
		n.cfg, n.configValid = cfg, true
		return nil
	}
	const remedy = "correct it; until then the configuration that was last in force stays so, " +
		"also after a restart of jackfield-nri"
	if _, ok := errors.AsType[*diag.Diagnostic](err); !ok {
		found.addError(remedy, err)
		return found
	}
	for _, fault := range diag.All(n.configFile(), err) {
		found.add(Error, remedy, "%v", fault)
	}
	return found
}

// chooseConfig chooses the configuration to check: the file of the command line, or else the configuration in force,
// which can be another one than the file of this host.
func chooseConfig(_ context.Context, n *node) (found findings) {
	n.configName = cmp.Or(n.cfg.File(), "the defaults (there is no "+config.DefaultPath+")")
	if n.daemon == nil {
		return nil
	}
	if n.daemon.Config.Error != "" {
		found.add(Error, "correct the file; the previous configuration stays in force",
			"jackfield-nri rejects a newer configuration: %s", n.daemon.Config.Error)
	}
	running, err := config.Parse([]byte(n.daemon.Config.Text), n.daemon.Config.File)
	if err != nil { // a daemon of another version
		return found
	}
	if n.configValid && running.Text() == n.cfg.Text() {
		return found
	}
	// A daemon in a pod reads a file of its ConfigMap, which this host may not have.
	name := fmt.Sprintf("the defaults, with which jackfield-nri (process %d) runs", n.daemon.PID)
	if n.daemon.Config.File != "" {
		name = fmt.Sprintf("%s, as jackfield-nri (process %d) runs with it", n.daemon.Config.File, n.daemon.PID)
	}
	if n.ConfigFile != "" {
		if n.configValid {
			found.add(Note, "leave out --config to check that one",
				"%s is not the configuration in force: that is %s", n.configName, name)
		}
		return found
	}
	if n.configValid && n.cfg.File() != "" {
		found.add(Note, "", "%s of this host is not the configuration in force, and is not checked further", n.configName)
	}
	n.cfg, n.configName, n.configValid = running, name, true
	return found
}

func checkConfig(_ context.Context, n *node) (found findings) {
	if _, err := n.cfg.CompilePolicy(""); err != nil {
		found.add(Error, "correct the rule", "%v", err)
		return found
	}
	rules := diag.Count(len(n.cfg.Policy.Rules), "policy rule")
	// The first fault of the configuration is the finding.
	switch {
	case n.cfg.File() == "" && n.daemon == nil:
		found.add(Note, "write rules: `man jackfield.yaml`; where jackfield-nri is in a pod, see the pod's log",
			"there is no %s, and jackfield-nri did not respond; the default configuration grants nothing", config.DefaultPath)
	case len(n.cfg.Policy.Rules) == 0:
		found.add(Warning, "write rules: `man jackfield.yaml`",
			"%s: there is no policy rule, so nothing is granted to anybody", n.configName)
	case n.cfg.Policy.Mode == policy.Audit:
		found.add(Warning, "set policy.mode to enforce once the audit file shows no refusal that you do not want",
			"%s: policy.mode is audit: nothing is refused", n.configName)
	case n.hasError("configuration"):
		found.add(Note, "", "in force until that is corrected: %s: %s", n.configName, rules)
	default:
		found.addOK("%s: %s", n.configName, rules)
	}
	return found
}

// directoryTimeout bounds the stat of a directory.
const directoryTimeout = time.Second

// checkDirectories finds the directories of the configuration that are unresponsive: a process that reads one hangs.
func checkDirectories(_ context.Context, n *node) (found findings) {
	host, dirs := n.Host, n.cfg.Directories(nil)
	timedOut := make([]bool, len(dirs))
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() {
			err := deadline.Within(directoryTimeout, func() error {
				_, _ = host.Stat(dir.Path) // an error is an answer
				return nil
			})
			timedOut[i] = errors.Is(err, deadline.ErrTimeout)
		})
	}
	wg.Wait()
	n.unresponsive = make(map[string]bool)
	for i, dir := range dirs {
		if !timedOut[i] {
			continue
		}
		n.unresponsive[dir.Path] = true
		found.add(Error, "check the file system mounted there, and whether its server or process runs; "+
			"jackfield-nri uses the directory again by itself once it responds",
			"directory %s (%s) is unresponsive: a process that reads it hangs, and containers that need it are refused",
			dir.Path, dir.Use)
	}
	return found
}
