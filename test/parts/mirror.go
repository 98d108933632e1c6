// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/containerd/errdefs"
)

// Mirror returns the address of the Debian archive that apt is configured with
// on this machine. It works before any "apt-get update".
func Mirror(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("find %q: packages come from a Debian archive: %w", "apt-get", errdefs.ErrUnavailable)
	}
	out, err := output(ctx, "apt-get", "indextargets", "--no-release-info",
		"--format", "$(REPO_URI) $(RELEASE) $(COMPONENT) $(TARGET_OF)", "Created-By: Packages")
	if err != nil {
		return "", fmt.Errorf("find the archive in apt's configuration: %w", err)
	}
	codename := osRelease("/etc/os-release")["VERSION_CODENAME"]
	if m := pickMirror(out, codename); m != "" {
		return m, nil
	}
	return "", fmt.Errorf("find the archive in apt's configuration: no network source of the suite %q, component main: %w",
		codename, errdefs.ErrNotFound)
}

// pickMirror chooses among lines of "address release component kind" the
// archive proper: the one that has the machine's own release, and not the
// security archive or a third party's.
func pickMirror(lines, codename string) string {
	best, rank := "", 0
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) != 4 || f[2] != "main" || f[3] != "deb" || strings.HasPrefix(f[0], "cdrom:") {
			continue
		}
		r := 0
		switch f[1] {
		case codename:
			r = 3
		case "stable", "oldstable", "testing", "unstable", "sid", "bookworm", "trixie", "forky":
			r = 2
		case codename + "-updates":
			r = 1
		}
		if r > rank {
			best, rank = f[0], r
		}
	}
	return best
}

// Debian reports whether this machine runs Debian, with the words to tell
// where it does not.
func Debian() (bool, string) {
	os := osRelease("/etc/os-release")
	if os["ID"] == "debian" {
		return true, ""
	}
	return false, fmt.Sprintf("this machine runs %q and not Debian", os["ID"])
}

func osRelease(path string) map[string]string {
	m := map[string]string{}
	f, err := os.Open(path)
	if err != nil {
		return m
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), "="); ok {
			m[k] = strings.Trim(v, `"'`)
		}
	}
	return m
}
