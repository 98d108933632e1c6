// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os/exec"
	"regexp"
	"time"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// containerdTimeout bounds how long containerd may take to print its version.
const containerdTimeout = 5 * time.Second

// containerdVersion returns the version that containerd on this host prints, such as 1.7.24; "" if there is none in PATH,
// and for a host below --root.
func containerdVersion(ctx context.Context, host hostfs.Root) string {
	if !host.IsLive() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, containerdTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "containerd", "--version").Output()
	if err != nil {
		return ""
	}
	return parseContainerdVersion(string(out))
}

// parseContainerdVersion returns the version in "containerd MODULE VERSION REVISION".
func parseContainerdVersion(line string) string {
	return regexp.MustCompile(`[0-9]+\.[0-9]+\.[0-9]+`).FindString(line)
}
