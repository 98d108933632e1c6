// SPDX-License-Identifier: Apache-2.0

package dircheck

import (
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// A check that takes too long makes the directory unresponsive until the check ends, also if the
// directory is configured again meanwhile. A missing directory is responsive.
func TestDirectoryIsUnresponsiveWhileItsCheckHangs(t *testing.T) {
	host, err := hostfs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	type report struct {
		path string
		up   bool
	}
	reports := make(chan report, 10)
	c := New(host, func(d Directory, _ time.Duration) { reports <- report{d.Path, d.Since.IsZero()} })
	defer c.Close()
	dirs := []Directory{{Path: "/missing", Use: "CDI"}, {Path: "/hangs", Use: "state"}}
	c.Replace(dirs)
	c.mu.Lock()
	hangs := c.byPath["/hangs"]
	c.mu.Unlock()
	if !testkit.Until(func() bool { // its real check has ended
		c.mu.Lock()
		defer c.mu.Unlock()
		return !hangs.checking
	}) {
		t.Fatal("the check of a missing directory does not end")
	}

	c.mu.Lock()
	hangs.checking = true // as if a check hung
	c.mu.Unlock()
	c.markUnresponsive(hangs, time.Now())
	if got := <-reports; got != (report{"/hangs", false}) {
		t.Errorf("reported %+v", got)
	}
	if err := c.Check("/hangs"); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "directory /hangs (state) has been unresponsive since") {
		t.Errorf("found %v", err)
	}
	if err := c.Check("/missing"); err != nil {
		t.Errorf("missing directory is unresponsive: %v", err)
	}
	c.Replace(dirs[:1])
	c.Replace(dirs)
	if faults := c.Faults(); len(faults) != 1 || !strings.Contains(faults[0], "/hangs") {
		t.Errorf("after a reload: %q", faults)
	}

	c.markResponsive(hangs)
	if got := <-reports; got != (report{"/hangs", true}) || c.Check("/hangs") != nil || len(c.Faults()) != 0 {
		t.Errorf("reported %+v, then %v, %q", got, c.Check("/hangs"), c.Faults())
	}
}

// A directory that answers is reported after the report that it was unresponsive, also if that one is slow.
func TestReportsComeInOrder(t *testing.T) {
	host, err := hostfs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	reports, answered := make(chan bool, 2), make(chan struct{})
	c := New(host, func(d Directory, _ time.Duration) {
		if up := d.Since.IsZero(); up {
			reports <- up
			close(answered)
			return
		}
		select { // as if the log were slow
		case <-answered:
		case <-time.After(50 * time.Millisecond):
		}
		reports <- false
	})
	defer c.Close()
	d := &checked{checking: true}
	began := make(chan struct{})
	go func() { close(began); c.markUnresponsive(d, time.Now()) }()
	<-began
	if !testkit.Until(func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !d.Since.IsZero()
	}) {
		t.Fatal("the directory is not marked")
	}
	c.markResponsive(d)
	if first, second := <-reports, <-reports; first || !second {
		t.Errorf("reported %v, %v: it answers again before it is unresponsive", first, second)
	}
}
