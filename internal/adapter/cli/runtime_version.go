// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os/exec"
	"regexp"
	"time"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// versionTimeout bounds how long a runtime may take to print its version.
const versionTimeout = 5 * time.Second

// runtimeVersion returns the version that containerd or crio on this host prints, such as 1.7.24; "" if the program is
// not in PATH, and for a host below --root.
func runtimeVersion(ctx context.Context, host hostfs.Root, program string) string {
	if !host.IsLive() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	return parseRuntimeVersion(string(out))
}

// parseRuntimeVersion returns the version in "containerd MODULE VERSION REVISION", or in "crio version VERSION" and
// the lines that follow it.
func parseRuntimeVersion(text string) string {
	return regexp.MustCompile(`[0-9]+\.[0-9]+\.[0-9]+`).FindString(text)
}
