// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// keyring is where Debian keeps the keys of its archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt runs apt-get for one suite on a state of its own.
type apt struct {
	suite  string
	mirror string
	conf   string // configuration file
	dir    string // working directory
}

// apt lays out the private state of a suite.
func (s *Store) apt(ctx context.Context, suite string) (*apt, error) {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("find %q: packages come from a Debian archive: %w", tool, errdefs.ErrUnavailable)
		}
	}
	mirror := s.Mirror
	if mirror == "" {
		var err error
		if mirror, err = Mirror(ctx); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(s.Dir, ".apt", suite)
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("lay out apt's state for %q: %w", suite, err)
		}
	}
	a := &apt{suite: suite, mirror: mirror, conf: filepath.Join(dir, "apt.conf"), dir: dir}
	files := map[string]string{a.conf: aptConf(dir), filepath.Join(dir, "sources.list"): sourcesList(mirror, suite, s.trusted)}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("lay out apt's state for %q: %w", suite, err)
		}
	}
	return a, nil
}

// aptConf is read after the machine's own configuration. It keeps the machine's proxies and
// credentials and disables its hooks, pins and lists.
func aptConf(dir string) string {
	return fmt.Sprintf(`#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State %[1]q;
Dir::State::status "/dev/null";
Dir::Cache %[2]q;
Dir::Etc::sourcelist %[3]q;
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "false";
APT::Update::Error-Mode "any";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::Retries "3";
`, filepath.Join(dir, "state"), filepath.Join(dir, "cache"), filepath.Join(dir, "sources.list"))
}

func sourcesList(mirror, suite string, trusted bool) string {
	opts := "target=Packages"
	if trusted {
		opts += " trusted=yes"
	} else if _, err := os.Stat(keyring); err == nil {
		opts += " signed-by=" + keyring
	}
	return fmt.Sprintf("deb [%s] %s %s main\n", opts, mirror, suite)
}

// update fetches and verifies the suite's index.
func (a *apt) update(ctx context.Context) error {
	if err := a.run(ctx, a.dir, "update"); err != nil {
		return fmt.Errorf("read index of suite %q: %w", a.suite, err)
	}
	return nil
}

// download fetches and verifies a package into dir, and returns its file.
func (a *apt) download(ctx context.Context, pkg, dir string) (string, error) {
	if err := a.run(ctx, dir, "download", pkg); err != nil {
		return "", fmt.Errorf("download package %q of suite %q: %w", pkg, a.suite, err)
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(debs) != 1 {
		err = fmt.Errorf("apt left %d package files in %s: %w", len(debs), dir, errdefs.ErrInternal)
	}
	if err != nil {
		return "", fmt.Errorf("download package %q of suite %q: %w", pkg, a.suite, err)
	}
	return debs[0], nil
}

func (a *apt) run(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--quiet=2", "--config-file", a.conf}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.explain(err, string(out))
}

// explain says in a sentence what apt's messages mean here.
func (a *apt) explain(err error, out string) error {
	var kind error = errdefs.ErrUnavailable
	why := "apt-get failed"
	has := func(texts ...string) bool {
		for _, t := range texts {
			if strings.Contains(out, t) {
				return true
			}
		}
		return false
	}
	switch {
	case has("NO_PUBKEY", "is not signed", "EXPKEYSIG", "REVKEYSIG", "BADSIG", "signatures couldn't be verified", "signatures were invalid"):
		kind, why = errdefs.ErrPermissionDenied, "the suite's signature cannot be verified with "+keyring+
			" of this machine; update the package debian-archive-keyring"
	case has("does not have a Release file", "no longer has a Release file", "404  Not Found", "File not found - "):
		kind, why = errdefs.ErrNotFound, "the mirror of apt's configuration has no such suite (any more)"
	case has("is not valid yet", "is expired"):
		kind, why = errdefs.ErrFailedPrecondition, "the suite's Release file is out of date, or this machine's clock is wrong"
	case has("Unable to locate package", "No candidate version", "Can't select"):
		kind, why = errdefs.ErrNotFound, "the suite has no such package for this architecture"
	case has("Hash Sum mismatch", "unexpected size", "Mirror sync in progress"):
		kind, why = errdefs.ErrDataLoss, "the mirror is being updated or damaged; try again later"
	case has("Could not resolve", "Could not connect", "Connection timed out", "Connection failed", "Temporary failure"):
		why = "the mirror cannot be reached; once the packages are in the cache no network is needed"
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("%s: %v: %w", why, err, kind)
	}
	return fmt.Errorf("%s: %w: apt-get (%v) said:\n%s", why, kind, err, strings.TrimSpace(out))
}
