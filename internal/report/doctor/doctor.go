// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Severity says how much a finding matters.
type Severity string

// The severities of findings.
const (
	OK      Severity = "ok"
	Note    Severity = "note"
	Warning Severity = "warning"
	Unknown Severity = "unknown" // doctor could not find out
	Error   Severity = "error"
)

// Finding is the result of a check, or one of its results.
type Finding struct {
	Check    string   `json:"check"` // what was checked
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`
	Remedy   string   `json:"remedy,omitempty"`
	Fixed    bool     `json:"fixed,omitempty"` // because the caller asked for it
}

// Options say what is examined.
type Options struct {
	// ReleaseAddresses runs the IPAM plugin in a record of the CNI plugin.
	ReleaseAddresses func(context.Context, record.Key, *record.IPAM) error

	Host           hostfs.Root
	ConfigFile     string // Jackfield's; "" for the node's own
	SpecDirs       string // the value of CDI_SPEC_DIRS
	ContainerdFile string
	CRIOFile       string
	// ContainerdVersion is the output of the host's containerd --version; "" if it cannot be run.
	ContainerdVersion string
	NRISocket         string // "" for the one that the runtime's configuration names
	Fix               bool   // do what is safe about findings
	IsPod             bool   // doctor runs in a pod, which does not see the host's files
}

// doctor is one examination.
type doctor struct {
	Options
	cfg          *config.Config                    // that is checked
	cfgName      string                            // of that, for messages
	node         *status.Node                      // nil when the daemon does not answer
	nodeErr      error                             // why it does not
	settings     map[string]runtimeconfig.Settings // by the runtime's name
	runtimeCDI   map[string]runtimeconfig.CDI      // of runtimes that inject CDI devices, by their name in messages
	configFault  bool                              // an error of the configuration is reported
	runtimeFound bool                              // a runtime's configuration exists
	nriFault     bool                              // an error of NRI is reported
	nriOn        bool                              // by the configuration of a runtime
	lacksNRI     bool                              // containerd is older than NRI
	hasNRISocket bool                              // a file is there
	hasPodman    bool                              // its program is there
	pluginDir    string
	unresponsive map[string]bool         // directories
	reading      *atomic.Pointer[string] // the file that a check is reading
	snapshot     *cdi.Snapshot
	findings     []Finding
}

// daemonTimeout bounds the request to the daemon.
const daemonTimeout = 5 * time.Second

// Examine makes all checks and returns their findings, in a fixed order. Later checks use what
// earlier ones found.
func Examine(ctx context.Context, opts Options) []Finding {
	d := doctor{Options: opts, settings: map[string]runtimeconfig.Settings{}, runtimeCDI: map[string]runtimeconfig.CDI{}}
	valid := d.runCheck("configuration", fewFilesTimeout, (*doctor).readConfig) && d.cfg != nil
	if !valid {
		d.cfg = config.Default()
	}
	d.runCheck("plugin", fewFilesTimeout, func(d *doctor) {
		ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
		defer cancel()
		d.node, d.nodeErr = status.Find(ctx, d.Host, config.StateDirs(d.Host, d.ConfigFile))
	})
	valid = d.chooseConfig(valid)
	d.configFault = slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Check == "configuration" && f.Severity == Error })
	d.checkDirectories()
	if valid {
		d.runCheck("configuration", checkTimeout, (*doctor).checkConfig)
	}
	d.checkRuntimes()
	if d.hasPodman {
		d.runCheck("podman", fewFilesTimeout, (*doctor).checkPodman)
	}
	d.runCheck("plugin", checkTimeout, (*doctor).checkPlugin)
	d.checkMissed()
	d.checkVswitches()
	d.runCheck("state", checkTimeout, (*doctor).checkState)
	d.runCheck("sockets", checkTimeout, (*doctor).checkSocketRoots)
	d.runCheck("cdi", checkTimeout, (*doctor).checkCDI)
	d.runCheck("hooks", checkTimeout, (*doctor).checkHooks)
	d.runCheck("device-info", checkTimeout, (*doctor).checkDeviceInfo)
	d.runCheck("multus", checkTimeout, (*doctor).checkMultus)
	d.runCheck("networks", checkTimeout, (*doctor).checkNetworks)
	d.runCheck("claims", checkTimeout, (*doctor).checkClaims)
	if d.snapshot != nil {
		d.runCheck("orphans", checkTimeout, (*doctor).checkOrphans)
		d.runCheck("injectors", checkTimeout, (*doctor).checkInjectors)
		d.runCheck("netDevices", checkTimeout, (*doctor).checkNetDevices)
	}
	d.runCheck("kubelet", checkTimeout, (*doctor).checkKubelet)
	return d.findings
}

// report adds a finding. The texts of errors have no sentinels.
func (d *doctor) report(check string, severity Severity, remedy, format string, args ...any) *Finding {
	d.findings = append(d.findings, Finding{Check: check, Severity: severity, Found: diag.Sprintf(format, args...), Remedy: remedy})
	return &d.findings[len(d.findings)-1]
}

func (d *doctor) reportOK(check, format string, args ...any) {
	d.report(check, OK, "", format, args...)
}

// runAsRoot is the remedy for what only root can read.
const runAsRoot = "run doctor as root"

// reportError reports an error. What only root can find out is unknown.
func (d *doctor) reportError(check, remedy string, err error) {
	severity := Error
	if errdefs.IsPermissionDenied(err) || errors.Is(err, os.ErrPermission) {
		severity, remedy = Unknown, runAsRoot
	}
	d.report(check, severity, remedy, "%v", err)
}

// reportUnread reports a directory or file that exists and cannot be read: a check knows nothing of its content.
func (d *doctor) reportUnread(check string, err error) {
	switch {
	case err == nil || errdefs.IsNotFound(err):
	case errdefs.IsPermissionDenied(err) || errors.Is(err, os.ErrPermission):
		d.report(check, Unknown, runAsRoot, "not checked: %v", err)
	default:
		d.report(check, Unknown, "make it readable", "not checked: %v", err)
	}
}

// maxReported bounds the findings of one kind; further ones are counted.
const maxReported = 20

// fileFault is why a file cannot be used.
type fileFault struct {
	file    string
	err     error
	warning bool // it can be used all the same
}

// reportFaults reports the first faults of a check's files, and counts the others.
func (d *doctor) reportFaults(check, remedy string, faults []fileFault) {
	for i, f := range faults {
		if i == maxReported {
			d.report(check, Error, "", "and %d more", len(faults)-maxReported)
			return
		}
		if f.warning {
			d.report(check, Warning, "", "%v", f.err)
			continue
		}
		d.report(check, Error, remedy+": `jackfield validate "+f.file+"` has every finding", "%v", f.err)
	}
}

// OpenRegistry reads the CDI spec files of a node. specDirs is the value of CDI_SPEC_DIRS. The
// caller closes the registry.
func OpenRegistry(host hostfs.Root, cfg *config.Config, specDirs string, watch bool) (*cdi.Cache, error) {
	dirs, err := cdi.DirsFromEnv(specDirs)
	if err != nil {
		return nil, err
	}
	if dirs == nil {
		dirs = cfg.CDI.SpecDirs
	}
	return cdi.NewCache(cdi.Options{Root: host.Dir(), SpecDirs: dirs, Extensions: cfg.CDI.Extensions, DisableWatch: !watch})
}

// configFiles returns access to the runtimes' configuration files that notes which file is being read.
func (d *doctor) configFiles() runtimeconfig.Files {
	return runtimeconfig.Files{Host: d.Host, Reading: func(path string) { d.reading.Store(&path) }}
}

// configFile is the configuration file that the command line or the node names.
func (d *doctor) configFile() string { return cmp.Or(d.ConfigFile, config.DefaultPath) }
