// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// Store is a cache folder of unpacked packages.
type Store struct {
	// Dir holds everything. It is created when needed.
	Dir string
	// Mirror is the archive's address; empty takes the one of apt's
	// configuration.
	Mirror string
	// Logf reports downloads and builds; nil reports nothing.
	Logf func(format string, args ...any)

	// trusted takes the place of signatures in this package's own tests.
	trusted bool
}

// Unpacked is a package in the cache.
type Unpacked struct {
	Package
	// FullVersion is the package's version, such as "1.1.5+ds1-1+b1".
	FullVersion string
	// SHA256 is the digest of the package file it came from, in hexadecimal.
	SHA256 string
	// Dir is the directory its files were unpacked below.
	Dir string
}

// Path returns where a file of the package is, "usr/sbin/runc" for example.
func (u Unpacked) Path(rel string) string { return filepath.Join(u.Dir, filepath.FromSlash(rel)) }

// record is the metadata file beside an unpacked package.
type record struct {
	Suite   string `json:"suite"`
	Package string `json:"package"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	Dir     string `json:"dir"` // relative to the record
}

// Open returns the store in the cache folder of this checkout (see CacheDir).
func Open() (*Store, error) {
	dir, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return &Store{Dir: filepath.Join(dir, "parts")}, nil
}

// Cached returns a package when it is in the cache, and an ErrNotFound
// otherwise. It never uses the network and takes no lock.
func (s *Store) Cached(p Package) (Unpacked, error) {
	if err := p.validate(); err != nil {
		return Unpacked{}, err
	}
	name := s.recordPath(p)
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return Unpacked{}, fmt.Errorf("find package %q: not in %s: %w", p, s.Dir, errdefs.ErrNotFound)
	}
	if err != nil {
		return Unpacked{}, fmt.Errorf("find package %q: %w", p, err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || !filepath.IsLocal(r.Dir) {
		return Unpacked{}, fmt.Errorf("find package %q: %s is damaged, remove it: %w", p, name, errdefs.ErrDataLoss)
	}
	u := Unpacked{Package: p, FullVersion: r.Version, SHA256: r.SHA256, Dir: filepath.Join(filepath.Dir(name), r.Dir)}
	if fi, err := os.Stat(u.Dir); err != nil || !fi.IsDir() {
		return Unpacked{}, fmt.Errorf("find package %q: %s is gone: %w", p, u.Dir, errdefs.ErrNotFound)
	}
	return u, p.checkVersion(r.Version)
}

// Ensure returns the packages in the order given, after it has downloaded,
// verified and unpacked those that are not in the cache.
func (s *Store) Ensure(ctx context.Context, pkgs ...Package) ([]Unpacked, error) {
	have, missing, err := s.split(pkgs)
	if err != nil || len(missing) == 0 {
		return have, err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cache (set %s for another place): %w", CacheEnv, err)
	}
	unlock, err := lock(ctx, filepath.Join(s.Dir, ".lock"), s.logf)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, missing, err = s.split(pkgs); err != nil { // another process may have been quicker
		return nil, err
	}
	bySuite := map[string][]Package{}
	var suites []string
	for _, p := range missing {
		if len(bySuite[p.Suite]) == 0 {
			suites = append(suites, p.Suite)
		}
		bySuite[p.Suite] = append(bySuite[p.Suite], p)
	}
	for _, suite := range suites {
		if err := s.fill(ctx, suite, bySuite[suite]); err != nil {
			return nil, err
		}
	}
	have, missing, err = s.split(pkgs)
	if err == nil && len(missing) != 0 {
		err = fmt.Errorf("find package %q: unpacked and not found: %w", missing[0], errdefs.ErrInternal)
	}
	return have, err
}

// Get is Ensure for one package.
func (s *Store) Get(ctx context.Context, p Package) (Unpacked, error) {
	got, err := s.Ensure(ctx, p)
	if err != nil {
		return Unpacked{}, err
	}
	return got[0], nil
}

// Remove removes packages from the cache. No other process may use them.
func (s *Store) Remove(ctx context.Context, pkgs ...Package) error {
	unlock, err := lock(ctx, filepath.Join(s.Dir, ".lock"), s.logf)
	if err != nil {
		return err
	}
	defer unlock()
	for _, p := range pkgs {
		u, err := s.Cached(p)
		if errdefs.IsNotFound(err) {
			continue
		}
		// Without its record, a package is not in the cache.
		if err = errors.Join(err, os.Remove(s.recordPath(p)), os.RemoveAll(u.Dir)); err != nil {
			return fmt.Errorf("remove package %q: %w", p, err)
		}
	}
	return nil
}

func (s *Store) split(pkgs []Package) (have []Unpacked, missing []Package, err error) {
	for _, p := range pkgs {
		u, err := s.Cached(p)
		switch {
		case err == nil:
			have = append(have, u)
		case errdefs.IsNotFound(err):
			missing = append(missing, p)
		default:
			return nil, nil, err
		}
	}
	return have, missing, nil
}

// fill downloads and unpacks packages of one suite.
func (s *Store) fill(ctx context.Context, suite string, pkgs []Package) error {
	apt, err := s.apt(ctx, suite)
	if err != nil {
		return err
	}
	s.logf("reading the package index of %s", suite)
	if err := apt.update(ctx); err != nil {
		return err
	}
	for _, p := range pkgs {
		s.logf("downloading %s", p)
		tmp, err := os.MkdirTemp(s.Dir, ".new-")
		if err != nil {
			return fmt.Errorf("unpack package %q: %w", p, err)
		}
		err = s.install(ctx, apt, p, tmp)
		os.RemoveAll(tmp)
		if err != nil {
			return err
		}
	}
	return nil
}

// install moves one package from tmp into the cache and writes its record last.
func (s *Store) install(ctx context.Context, apt *apt, p Package, tmp string) error {
	deb, err := apt.download(ctx, p.Name, tmp)
	if err != nil {
		return err
	}
	version, err := output(ctx, "dpkg-deb", "--field", deb, "Version")
	if err != nil {
		return fmt.Errorf("read package %q: %w", p, err)
	}
	if err := p.checkVersion(version); err != nil {
		return err
	}
	sum, err := digest(deb)
	if err != nil {
		return fmt.Errorf("read package %q: %w", p, err)
	}
	root := filepath.Join(tmp, "root")
	if _, err := output(ctx, "dpkg-deb", "--extract", deb, root); err != nil {
		return fmt.Errorf("unpack package %q: %w", p, err)
	}
	name := s.recordPath(p)
	r := record{Suite: p.Suite, Package: p.Name, Version: version, SHA256: sum,
		Dir: p.Name + "_" + strings.NewReplacer(":", "-", "/", "-").Replace(version)}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("unpack package %q: %w", p, err)
	}
	dst := filepath.Join(filepath.Dir(name), r.Dir)
	if err := os.RemoveAll(dst); err != nil {
		return fmt.Errorf("unpack package %q: %w", p, err)
	}
	if err := os.Rename(root, dst); err != nil {
		return fmt.Errorf("unpack package %q: %w", p, err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record package %q: %w", p, err)
	}
	if err := os.WriteFile(filepath.Join(tmp, "record"), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("record package %q: %w", p, err)
	}
	if err := os.Rename(filepath.Join(tmp, "record"), name); err != nil {
		return fmt.Errorf("record package %q: %w", p, err)
	}
	return nil
}

func (s *Store) recordPath(p Package) string {
	return filepath.Join(s.Dir, p.Suite, p.Name+".json")
}

func (s *Store) logf(format string, args ...any) {
	if s.Logf != nil {
		s.Logf(format, args...)
	}
}

func (p Package) validate() error {
	for _, s := range []string{p.Suite, p.Name} {
		if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" || s[0] == '.' || s[0] == '-' {
			return fmt.Errorf("find package %q: not the name of a suite and a package: %w", p, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

func (p Package) checkVersion(version string) error {
	upstream := version
	if _, after, ok := strings.Cut(version, ":"); ok {
		upstream = after
	}
	if !strings.HasPrefix(upstream, p.Version) {
		return fmt.Errorf("find package %q: version is %s and should begin with %s: the suite has moved on, "+
			"the tests must name another: %w", p, version, p.Version, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// output runs a program in the C locale and returns what it printed, trimmed.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
