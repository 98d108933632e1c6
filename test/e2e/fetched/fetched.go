// SPDX-License-Identifier: Apache-2.0

// Package fetched hands Debian packages to tests in a jail, which has no network: they are fetched outside, and an
// environment variable has their paths inside.
package fetched

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/parts"
)

// Set is a set of packages, by the name that messages have, such as "Podman 5".
type Set string

type result struct {
	Packages []parts.Unpacked
	Missing  string // the reason why there are none
}

func (s Set) variable() string {
	return "JACKFIELD_FETCHED_" + strings.ReplaceAll(strings.ToUpper(string(s)), " ", "_")
}

// Fetch fetches the packages that are not in the cache. Call it outside of the jail. If the archive is unavailable,
// Require reports it. Any other failure is an error.
func (s Set) Fetch(ctx context.Context, packages ...parts.Package) error {
	store, err := parts.Open()
	if err != nil {
		return err
	}
	store.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "%s: %s\n", s, fmt.Sprintf(format, args...)) }
	var r result
	if r.Packages, err = store.Ensure(ctx, packages...); errdefs.IsUnavailable(err) {
		r.Missing = err.Error()
	} else if err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.Setenv(s.variable(), string(data))
}

// Env returns the variable that Fetch set.
func (s Set) Env() string { return s.variable() + "=" + os.Getenv(s.variable()) }

// Packages returns the packages in the order of Fetch. There are none if the archive was unavailable.
func (s Set) Packages() ([]parts.Unpacked, error) {
	r, err := s.read()
	return r.Packages, err
}

func (s Set) read() (r result, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(s.variable())), &r); err != nil {
		return result{}, fmt.Errorf("the package's TestMain does not fetch %s: read %s: %w", s, s.variable(), err)
	}
	return r, nil
}

// Require returns the packages. If they are missing it skips the test, with the reason. In CI it fails the test.
func (s Set) Require(tb testing.TB) []parts.Unpacked {
	tb.Helper()
	r, err := s.read()
	if err != nil {
		tb.Fatal(err)
	}
	if r.Missing != "" {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("no %s, and CI promises that there is: %s", s, r.Missing)
		}
		tb.Skipf("skipped: no %s: %s", s, r.Missing)
	}
	return r.Packages
}

// Dirs returns the directories of packages.
func Dirs(packages []parts.Unpacked) []string {
	var dirs []string
	for _, u := range packages {
		dirs = append(dirs, u.Dir)
	}
	return dirs
}
