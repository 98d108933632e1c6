// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
)

const testSuite = "bookworm"

// requireApt skips a test without apt. In CI it fails the test.
func requireApt(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("no %s, and CI promises Debian", tool)
			}
			t.Skipf("no %s: packages come from a Debian archive", tool)
		}
	}
}

// archive creates a Debian archive of one package in a folder and returns its
// address and the package file. It is unsigned.
func archive(t *testing.T, version string) (mirror, deb string) {
	t.Helper()
	requireApt(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	arch, err := output(context.Background(), "dpkg", "--print-architecture")
	if err != nil {
		t.Fatal(err)
	}
	control := fmt.Sprintf("Package: little\nVersion: %s\nArchitecture: %s\nMaintainer: Nobody <nobody@example.com>\nDescription: little\n", version, arch)
	write("src/DEBIAN/control", control)
	write("src/usr/bin/little", "#!/bin/sh\necho little\n")
	if err := os.MkdirAll(filepath.Join(dir, "pool"), 0o755); err != nil {
		t.Fatal(err)
	}
	deb = filepath.Join(dir, "pool", "little.deb")
	if _, err := output(context.Background(), "dpkg-deb", "--root-owner-group", "--build", filepath.Join(dir, "src"), deb); err != nil {
		t.Fatal(err)
	}
	size := func(name string) int64 {
		fi, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	sum := func(name string) string {
		s, err := digest(name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	index := "dists/" + testSuite + "/main/binary-" + arch + "/Packages"
	packages := write(index, fmt.Sprintf("%sFilename: pool/little.deb\nSize: %d\nSHA256: %s\n\n", control, size(deb), sum(deb)))
	write("dists/"+testSuite+"/Release", fmt.Sprintf("Suite: %[1]s\nCodename: %[1]s\nArchitectures: %[2]s\nComponents: main\n"+
		"Date: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n %[3]s %[4]d main/binary-%[2]s/Packages\n", testSuite, arch, sum(packages), size(packages)))
	return "file:" + dir, deb
}

func TestEnsureDownloadsOnce(t *testing.T) {
	mirror, deb := archive(t, "1:1.2.3-4")
	s := &Store{Dir: filepath.Join(t.TempDir(), "parts"), Mirror: mirror, Logf: t.Logf, trusted: true}
	want, err := digest(deb)
	if err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	for range 3 { // as concurrent test processes would
		wg.Go(func() {
			s := *s
			if _, err := s.Get(t.Context(), Package{Suite: testSuite, Name: "little", Version: "1.2."}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()

	t.Setenv("PATH", "") // no apt, no network
	u, err := s.Get(t.Context(), Package{Suite: testSuite, Name: "little"})
	if err != nil {
		t.Fatal(err)
	}
	if u.FullVersion != "1:1.2.3-4" || u.SHA256 != want {
		t.Errorf("got version %q and digest %q, want 1:1.2.3-4 and %q", u.FullVersion, u.SHA256, want)
	}
	if text, err := os.ReadFile(u.Path("usr/bin/little")); err != nil || !strings.Contains(string(text), "echo little") {
		t.Errorf("content is %q, %v", text, err)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, ".new-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}

	for range 2 { // a package that is not in the cache is no error
		if err := s.Remove(t.Context(), u.Package); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(u.Dir); !os.IsNotExist(err) {
		t.Errorf("the removed package is still there: %v", err)
	}
	if _, err := s.Cached(u.Package); !errdefs.IsNotFound(err) {
		t.Errorf("the removed package is in the cache: %v", err)
	}
}

func TestEnsureRefusesUntrustedPackages(t *testing.T) {
	mirror, deb := archive(t, "1.2.3")
	little := Package{Suite: testSuite, Name: "little"}
	for _, tc := range []struct {
		name    string
		pkg     Package
		trusted bool
		before  func(t *testing.T)
		is      func(error) bool
		says    string
	}{
		{name: "unsigned", pkg: little, is: errdefs.IsPermissionDenied, says: "debian-archive-keyring"},
		{name: "no such suite", pkg: Package{Suite: "buzz", Name: "little"}, trusted: true, is: errdefs.IsNotFound, says: `suite "buzz": the mirror of apt's configuration has no such suite`},
		{name: "no such package", pkg: Package{Suite: testSuite, Name: "large"}, trusted: true, is: errdefs.IsNotFound, says: "has no such package"},
		{name: "another version", pkg: Package{Suite: testSuite, Name: "little", Version: "2."}, trusted: true, is: errdefs.IsFailedPrecondition, says: "1.2.3 and should begin with 2."},
		{name: "bad name", pkg: Package{Suite: "../x", Name: "little"}, trusted: true, is: errdefs.IsInvalidArgument, says: "not the name of a suite"},
		{name: "tampered", pkg: little, trusted: true, is: errdefs.IsDataLoss, says: "the mirror is being updated or damaged", before: func(t *testing.T) {
			text, err := os.ReadFile(deb)
			if err != nil {
				t.Fatal(err)
			}
			text[len(text)-1] ^= 1
			if err := os.WriteFile(deb, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.before != nil {
				tc.before(t)
			}
			s := &Store{Dir: filepath.Join(t.TempDir(), "parts"), Mirror: mirror, trusted: tc.trusted}
			_, err := s.Get(t.Context(), tc.pkg)
			if err == nil || !tc.is(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want one that says %q", err, tc.says)
			}
			if _, err := s.Cached(little); !errdefs.IsNotFound(err) {
				t.Errorf("the package is in the cache: %v", err)
			}
		})
	}
}

func TestDamagedCacheIsDownloadedAgain(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(s.Dir, "sid"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(s.Dir, "sid", "little.json")
	for _, text := range []string{"", "{", `{"dir":"../../etc"}`, `{"dir":"/etc"}`} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := s.Cached(Package{Suite: "sid", Name: "little"})
		if !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestMirrorIsThatOfSuite(t *testing.T) {
	const lines = `cdrom:[Debian]/ bookworm main deb
https://repo.example/security/ bookworm-security main deb
https://repo.example/debian/ bookworm-updates main deb
https://vendor.example/ nodistro main deb
https://other.example/debian/ stable main deb
https://repo.example/debian/ bookworm contrib deb
https://mirror.example/debian/ bookworm main deb
`
	for _, tc := range []struct{ codename, drop, want string }{
		{codename: "bookworm", want: "https://mirror.example/debian/"},
		{codename: "bookworm", drop: "mirror.example", want: "https://other.example/debian/"},
		{codename: "duke", want: "https://other.example/debian/"},
	} {
		in := lines
		if tc.drop != "" {
			in = strings.ReplaceAll(lines, "https://mirror.example/debian/ bookworm", "https://mirror.example/debian/ x")
		}
		if got := pickMirror(in, tc.codename); got != tc.want {
			t.Errorf("%+v: got %q", tc, got)
		}
	}
	if got := pickMirror("https://vendor.example/ nodistro main deb\n", "bookworm"); got != "" {
		t.Errorf("picked %q as Debian's archive", got)
	}
}

func TestModuleRootHasGoMod(t *testing.T) {
	root, err := ModuleRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "test", "parts")); err != nil {
		t.Error(err)
	}
	if _, err := ModuleRoot("/"); !errdefs.IsNotFound(err) {
		t.Errorf("from /: %v", err)
	}
	t.Setenv(CacheEnv, "/elsewhere")
	if s, err := Open(); err != nil || s.Dir != "/elsewhere/parts" {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestDigestIsSHA256(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := digest(name); err != nil || got != fmt.Sprintf("%x", sha256.Sum256([]byte("x"))) {
		t.Errorf("got %q, %v", got, err)
	}
}
