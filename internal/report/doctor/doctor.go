// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
)

// check is a row of the table of checks.
type check struct {
	name  string // of its findings
	limit time.Duration
	// needs reports whether the node has the things that the check is about; nil if every node has them.
	needs func(n *node) bool
	// run returns the findings. It can set fields of the node for later checks.
	run func(ctx context.Context, n *node) findings
}

// Time limits of checks.
const (
	fewFilesTimeout = 5 * time.Second  // for a check that reads a few files
	checkTimeout    = 30 * time.Second // for a check that reads every file of a directory
	// impatientTimeout is the limit of every check if a directory is unresponsive.
	impatientTimeout = 2 * time.Second
)

// checks is the table of all checks in their order. Later checks use the fields of the node that earlier ones set.
//
// The configuration comes first, because it names the directories. The plugin follows, because its configuration is the
// one in force. An unresponsive directory is found before the checks that read it, and shortens their limits.
var checks = []check{
	{"configuration", fewFilesTimeout, nil, readConfig},
	{"plugin", fewFilesTimeout, nil, queryDaemon},
	{"configuration", fewFilesTimeout, nil, chooseConfig},
	{"directories", fewFilesTimeout, nil, checkDirectories},
	{"configuration", checkTimeout, (*node).hasConfig, checkConfig},
	{"memlock", fewFilesTimeout, (*node).hasConfig, checkMemlock},
	{"runtime", fewFilesTimeout, nil, checkContainerd},
	{"injectors", fewFilesTimeout, (*node).hasContainerd, checkContainerdCDI},
	{"runtime", fewFilesTimeout, nil, checkCRIO},
	{"injectors", fewFilesTimeout, (*node).hasCRIO, checkCRIOInjectors},
	{"nri", fewFilesTimeout, nil, findNRISocket},
	{"runtime", fewFilesTimeout, nil, checkRuntimes},
	{"nri", fewFilesTimeout, (*node).canHaveNRI, checkNRISocket},
	{"podman", fewFilesTimeout, (*node).isPodmanHost, checkPodman},
	{"plugin", checkTimeout, nil, checkPlugin},
	{"version", checkTimeout, (*node).hasRuntime, checkNRIVersion},
	{"required", checkTimeout, nil, checkRequired},
	{"missed", checkTimeout, (*node).isRegistered, checkMissed},
	{"devices", checkTimeout, (*node).isRegistered, checkDeviceNumbers},
	{"vswitches", checkTimeout, (*node).hasVswitches, checkVswitches},
	{"state", checkTimeout, nil, checkState},
	{"staging", checkTimeout, nil, checkStaging},
	{"sockets", checkTimeout, nil, checkSocketRoots},
	{"cdi", checkTimeout, nil, checkCDI},
	{"hooks", checkTimeout, (*node).hasHooksDirs, checkHooks},
	{"device-info", checkTimeout, nil, checkDeviceInfo},
	{"multus", checkTimeout, (*node).hasMultus, checkMultus},
	{"networks", checkTimeout, nil, checkNetworks},
	{"claims", checkTimeout, nil, checkClaims},
	{"orphans", checkTimeout, (*node).hasSnapshot, checkHookOrphans},
	{"orphans", checkTimeout, (*node).hasSnapshot, checkOrphans},
	{"injectors", checkTimeout, (*node).hasSnapshot, checkInjectors},
	{"netDevices", checkTimeout, (*node).hasSnapshot, checkNetDevices},
	{"intelRdt", checkTimeout, (*node).hasSnapshot, checkIntelRdt},
	{"kubelet", checkTimeout, nil, checkKubelet},
}

// Examine makes all checks and returns their findings, in a fixed order.
func Examine(ctx context.Context, opts Options) []Finding {
	n := newNode(opts)
	for _, c := range checks {
		if c.needs == nil || c.needs(n) {
			n.examine(ctx, c)
		}
	}
	return n.findings
}

// examine makes one check with its fixes, and gives it up after its time limit. The check works on a copy of the node,
// which replaces the node only if the check ends in time: a check that was given up can go on writing.
func (n *node) examine(ctx context.Context, c check) {
	limit := c.limit
	if len(n.unresponsive) > 0 {
		limit = min(limit, impatientTimeout)
	}
	sub := *n
	sub.reading = new(atomic.Pointer[string])
	fix := n.Fix
	found, err := deadline.Run(nil, limit, func() (findings, error) {
		list := c.run(ctx, &sub)
		if fix {
			list.fix(ctx)
		}
		return list, nil
	})
	var panicked *deadline.PanicError
	switch file := sub.reading.Load(); {
	case err == nil:
		*n = sub
	case errors.As(err, &panicked):
		found = nil
		found.add(Error, "please report it", "internal error of doctor, the check was not finished: %v", panicked.Value)
	case file != nil:
		found = nil
		found.add(Error, "check the file system mounted there, and whether its server or process runs: "+
			"the runtime waits for it, too, when it starts", "not checked: %s did not respond within %v", *file, limit)
	default:
		found = nil
		found.add(Error, "", "not checked: not done within %v, a directory that it needs is unresponsive", limit)
	}
	for _, f := range found {
		f.Check = c.name
		n.findings = append(n.findings, f)
	}
}
