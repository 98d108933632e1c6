// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// every calls f until ctx ends.
func every(ctx context.Context, d time.Duration, f func(n int) error) error {
	return repeat(ctx, func() time.Duration { return d }, f)
}

// atRandom calls f until ctx ends, at random intervals of d on average.
func atRandom(ctx context.Context, d time.Duration, f func(n int) error) error {
	return repeat(ctx, func() time.Duration { return d/2 + rand.N(d) }, f)
}

func repeat(ctx context.Context, interval func() time.Duration, f func(n int) error) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval()):
		}
		if err := f(n); err != nil {
			return err
		}
	}
}

// reload rewrites the policy; every third version is invalid.
func (s *soak) reload(ctx context.Context) error {
	return every(ctx, soakReload, func(n int) error {
		s.plugin.RLock()
		defer s.plugin.RUnlock()
		from := len(s.p.Log())
		if n%3 == 2 {
			s.bad.Add(1)
			err := writeRenamed(s.p.ConfigFile, soakConfig+"    - name: broken\n      fro: {}\n")
			return errors.Join(err, s.logged(ctx, from, "fro"))
		}
		s.good.Add(1)
		err := writeRenamed(s.p.ConfigFile, soakConfig+fmt.Sprintf("    - {name: other-%d, for: {namespaces: [none]}, allow: {cdi: [\"vendor.com/net=*\"]}}\n", n))
		return errors.Join(err, s.logged(ctx, from, "in force"))
	})
}

// logged waits until the plugin has logged a text.
func (s *soak) logged(ctx context.Context, from int, text string) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return s.p.Plugin.WaitLog(ctx, from, text)
}

// churn writes and removes CDI files.
func (s *soak) churn(ctx context.Context) error {
	return every(ctx, 50*time.Millisecond, func(n int) error {
		s.files.Add(1)
		err := writeRenamed(fmt.Sprintf("/etc/cdi/churn-%d.json", n), soakDevice("churn", fmt.Sprintf("idle%d", n)))
		if n >= 50 {
			err = errors.Join(err, os.Remove(fmt.Sprintf("/etc/cdi/churn-%d.json", n-50)))
		}
		return err
	})
}

// vswitch starts the ports and restarts them one after another, sometimes with their directory.
func (s *soak) vswitch(ctx context.Context) error {
	servers := map[string]*vswitch.Server{}
	start := func(name string) error {
		kind, file := vswitch.VhostUser, "vhost.sock"
		if strings.HasPrefix(name, "memif") {
			kind, file = vswitch.Memif, "memif.sock"
		}
		dir := "/run/vsw/" + name
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		server, err := vswitch.Listen(kind, filepath.Join(dir, file), vswitch.Greeting(name))
		servers[name] = server
		return err
	}
	var names []string
	for port := range soakPorts {
		names = append(names, fmt.Sprintf("port%d", port), fmt.Sprintf("memif%d", port))
	}
	for _, name := range names {
		if err := start(name); err != nil {
			return err
		}
	}
	defer func() {
		for _, server := range servers {
			_ = server.Close()
		}
	}()
	s.vswitches.Add(1)
	return every(ctx, 200*time.Millisecond, func(n int) error {
		s.vswitches.Add(1)
		name := names[n%len(names)]
		if err := servers[name].Crash(); err != nil {
			return err
		}
		return start(name)
	})
}

// restart stops or kills the runtime between two calls of the runtime, and starts it again, also when the soak ends
// meanwhile.
func (s *soak) restart(ctx context.Context) error {
	return atRandom(ctx, *soakRestart, func(int) error {
		s.runtime.Lock()
		defer s.runtime.Unlock()
		s.restarts.Add(1)
		end := s.h.Node.Restart
		if rand.N(2) == 0 {
			end = s.h.Node.Kill
		}
		if err := end(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, node.Patience)
		defer cancel()
		return s.h.Node.WaitPlugin(wait, "10-jackfield")
	})
}

// restartPlugin stops or kills the plugin between two calls of the runtime, and starts it again.
// [TestPodsWhilePluginIsKilled] kills it during calls.
func (s *soak) restartPlugin(ctx context.Context) error {
	return atRandom(ctx, *soakPlugin, func(int) error {
		s.runtime.Lock()
		defer s.runtime.Unlock()
		s.plugin.Lock()
		defer s.plugin.Unlock()
		s.pluginRestarts.Add(1)
		if rand.N(2) == 0 {
			s.p.Kill()
		} else if err := s.p.Stop(node.Patience); err != nil {
			return err
		}
		return s.p.Plugin.Start(context.WithoutCancel(ctx))
	})
}

// held counts what the plugin holds between pods.
type held struct{ descriptors, goroutines, mounts, files, live, rss int }

func (f held) String() string {
	return fmt.Sprintf("%d descriptors, %d goroutines, %d mounts, %d files of state, %d KiB of live heap, %.1f MiB resident",
		f.descriptors, f.goroutines, f.mounts, f.files, f.live/1024, float64(f.rss)/1024)
}

// measure returns the lowest of several readings, because the disturbances go on meanwhile. It keeps
// reading until the result is as wanted, since a busy machine may take long to settle.
func (s *soak) measure(wanted func(held) bool) held {
	s.t.Helper()
	least := s.measureOnce()
	for i, end := 0, time.Now().Add(node.Patience); i < 20 || !wanted(least) && time.Now().Before(end); i++ {
		time.Sleep(100 * time.Millisecond)
		now := s.measureOnce()
		least = held{min(least.descriptors, now.descriptors), min(least.goroutines, now.goroutines), min(least.mounts, now.mounts),
			min(least.files, now.files), min(least.live, now.live), min(least.rss, now.rss)}
	}
	return least
}

func (s *soak) measureOnce() held {
	s.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", s.p.PID())
	heap, herr := s.get("/debug/pprof/heap?gc=1&debug=1")
	fds, err := os.ReadDir(proc + "fd")
	mounts, merr := os.ReadFile(proc + "mountinfo")
	status, serr := os.ReadFile(proc + "status")
	metrics, gerr := s.get("/metrics")
	if err := errors.Join(err, herr, merr, serr, gerr); err != nil {
		s.t.Fatal(err)
	}
	files := 0
	s.state = nil
	err = filepath.WalkDir("/run/jackfield", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
			s.state = append(s.state, path)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return held{len(fds), number(metrics, "go_goroutines "), strings.Count(string(mounts), "/run/jackfield"), files,
		number(heap, "# HeapAlloc ="), number(string(status), "VmRSS:")}
}

// number returns the number after a name at the beginning of a line, or -1.
func number(text, name string) int {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				n, err := strconv.Atoi(f[0])
				if err == nil {
					return n
				}
			}
		}
	}
	return -1
}

func (s *soak) get(path string) (string, error) { return getMetrics("/run/soak.sock", path) }

// getMetrics returns the body of a path at the metrics socket of a plugin.
func getMetrics(socket, path string) (string, error) {
	client := &http.Client{Timeout: node.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
	r, err := client.Get("http://plugin" + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

// judge compares what is held after each quarter with what was held after the first.
func (s *soak) judge(takes []held) {
	s.t.Helper()
	first, last := takes[0], takes[len(takes)-1]
	for _, err := range s.grown(first, last) {
		s.t.Error(err)
	}
	if first.goroutines < 0 || first.live < 0 {
		s.t.Errorf("goroutines or memory could not be read: %v", first)
	}
}

// longSoak is the number of pods from which on the first quarter is more than warm-up.
const longSoak = 400

// grown returns an error for each quantity that has grown since the first quarter.
func (s *soak) grown(first, last held) (errs []error) {
	// Some differences are no leak: an open connection or file, one more replaced configuration with its four
	// descriptors, and the worker goroutines, of which as many are kept as were needed at once. In a short
	// run, the first quarter is warm-up.
	short := s.pods < longSoak
	slack := map[bool]held{false: {descriptors: 6, goroutines: 8}, true: {descriptors: 12, goroutines: 12}}[short]
	// Eight replaced configurations wait to be closed. Each of them has three more descriptors to watch CDI
	// directories if a CDI device was requested while it was in force, which is a matter of chance. A long
	// run replaces hundreds.
	slack.descriptors += 8 * 3
	// The live heap after a collection is what the plugin holds. Resident memory also grows by free memory that the
	// Go runtime has not returned to the kernel yet, and by pages of the program that run for the first time.
	slack.live = first.live / map[bool]int{false: 10, true: 4}[short]
	for _, c := range []struct {
		what       string
		from, to   int
		difference int
	}{
		{"descriptors", first.descriptors, last.descriptors, slack.descriptors}, {"goroutines", first.goroutines, last.goroutines, slack.goroutines},
		{"mounts", first.mounts, last.mounts, 0}, {"files of state", first.files, last.files, 0},
		{"bytes of live heap", first.live, last.live, slack.live},
	} {
		if c.to > c.from+c.difference {
			errs = append(errs, fmt.Errorf("%s: %d after the first quarter, %d after the last; files: %q", c.what, c.from, c.to, s.state))
		}
	}
	return errs
}
