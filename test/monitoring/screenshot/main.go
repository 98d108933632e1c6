// SPDX-License-Identifier: Apache-2.0

// Command screenshot draws docs/images/dashboard.png: the panels of deploy/monitoring/dashboard.json for a
// simulated fleet. Prometheus evaluates the dashboard's queries, Grafana's React components draw the panels, and
// Chromium takes the picture. It needs npm and Chromium.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackfield/jackfield/test/parts"
)

// shownTime is how long a time the dashboard shows.
const shownTime = 6 * time.Hour

// lastScrape is when the picture is taken. Prometheus keeps blocks of two hours, which begin at even hours.
var lastScrape = time.Date(2026, 11, 2, 11, 57, 0, 0, time.UTC)

func main() {
	top := flag.String("C", "..", "`directory` of the checkout")
	chromium := flag.String("chromium", "chromium", "Chromium `program`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := draw(ctx, *top, *chromium); err != nil {
		fmt.Fprintln(os.Stderr, "screenshot:", err)
		os.Exit(1)
	}
}

func draw(ctx context.Context, top, chromium string) error {
	here := filepath.Join(top, "test/monitoring/screenshot")
	work, err := filepath.Abs(filepath.Join(top, ".cache/dashboard"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	dashboard, err := os.ReadFile(filepath.Join(top, "deploy/monitoring/dashboard.json"))
	if err != nil {
		return err
	}
	results, err := evaluate(ctx, dashboard)
	if err != nil {
		return err
	}
	page, err := json.Marshal(map[string]any{"dashboard": json.RawMessage(dashboard), "results": results,
		"from": lastScrape.Add(-shownTime).UnixMilli(), "to": lastScrape.UnixMilli()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "data.js"), slices.Concat([]byte("window.fleet = "), page), 0o644); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "page.jsx", "scrollbars.js", "index.html"} {
		data, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, name), data, 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"ci"}, {"run", "build"}} {
		if _, err := run(ctx, work, "npm", append(args, "--silent")...); err != nil {
			return err
		}
	}
	return photograph(ctx, top, work, chromium)
}

// photograph writes the picture, and the titles of the panels in it.
func photograph(ctx context.Context, top, work, chromium string) error {
	profile, err := os.MkdirTemp("", "jackfield-chromium-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(profile)
	modules := filepath.Join(work, "node_modules")
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(work)))
	// Where Grafana's components look for icons and fonts.
	mux.Handle("/public/build/img/", http.StripPrefix("/public/build", http.FileServer(http.Dir(filepath.Join(modules, "@grafana/ui/dist/public")))))
	for file, weight := range map[string]string{"Regular": "400", "Medium": "500"} {
		mux.HandleFunc("/public/fonts/inter/Inter-"+file+".woff2", func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, filepath.Join(modules, "@fontsource/inter/files/inter-latin-"+weight+"-normal.woff2"))
		})
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	image := filepath.Join(work, "dashboard.png")
	browse := func(args ...string) ([]byte, error) {
		return run(ctx, work, chromium, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir=" + profile, "--hide-scrollbars",
			"--window-size=1600,2040", "--virtual-time-budget=20000"}, append(args, server.URL)...)...)
	}
	dom, err := browse("--dump-dom")
	if err != nil {
		return err
	}
	drawn := regexp.MustCompile(`<script id="drawn" type="application/json">(\[.*?\])</script>`).FindSubmatch(dom)
	if drawn == nil {
		return fmt.Errorf("the page drew nothing:\n%.2000s", dom)
	}
	if _, err := browse("--screenshot=" + image); err != nil {
		return err
	}
	var titles bytes.Buffer
	if err := json.Indent(&titles, drawn[1], "", " "); err != nil {
		return err
	}
	titles.WriteByte('\n')
	data, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(top, "test/monitoring/screenshot/panels.json"), titles.Bytes(), 0o644),
		os.WriteFile(filepath.Join(top, "docs/images/dashboard.png"), data, 0o644))
}

func run(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

// result is what Prometheus answers to one query of a panel.
type result struct {
	Panel  int             `json:"panel"`
	RefID  string          `json:"refId"`
	Series json.RawMessage `json:"series"`
}

// evaluate has Prometheus evaluate the dashboard's queries for the simulated fleet.
func evaluate(ctx context.Context, dashboard []byte) ([]result, error) {
	var d struct {
		Panels []struct {
			ID      int
			Targets []struct {
				RefID, Expr string
				Instant     bool
			}
		}
	}
	if err := json.Unmarshal(dashboard, &d); err != nil {
		return nil, err
	}
	store, err := parts.Open()
	if err != nil {
		return nil, err
	}
	prometheus, err := store.Get(ctx, parts.Prometheus())
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "jackfield-fleet-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := fill(ctx, prometheus.Path("usr/bin/promtool"), tmp); err != nil {
		return nil, err
	}
	address, stop, err := serve(ctx, prometheus.Path("usr/bin/prometheus"), tmp)
	if err != nil {
		return nil, err
	}
	defer stop()
	variables := strings.NewReplacer("$__rate_interval", fmt.Sprintf("%ds", int(rateInterval.Seconds())), "$cluster", ".*", "$instance", ".*", "$job", ".*")
	var results []result
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			query, path := url.Values{"query": {variables.Replace(q.Expr)}}, "query"
			if q.Instant {
				query.Set("time", strconv.FormatInt(lastScrape.Unix(), 10))
			} else {
				path = "query_range"
				query.Set("start", strconv.FormatInt(lastScrape.Add(-shownTime).Unix(), 10))
				query.Set("end", strconv.FormatInt(lastScrape.Unix(), 10))
				query.Set("step", strconv.Itoa(int(scrapeInterval.Seconds())))
			}
			series, err := get(ctx, address+"/api/v1/"+path+"?"+query.Encode())
			if err != nil {
				return nil, fmt.Errorf("panel %d, query %s: %w", p.ID, q.RefID, err)
			}
			results = append(results, result{p.ID, q.RefID, series})
		}
	}
	return results, nil
}

// fill writes the fleet into a new database of Prometheus.
func fill(ctx context.Context, promtool, dir string) error {
	text := filepath.Join(dir, "fleet.txt")
	f, err := os.Create(text)
	if err != nil {
		return err
	}
	// The first rates need scrapes from before the shown time.
	if err := errors.Join(writeFleet(f, lastScrape.Add(-shownTime-2*rateInterval), lastScrape), f.Close()); err != nil {
		return err
	}
	_, err = run(ctx, dir, promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, filepath.Join(dir, "data"))
	return errors.Join(err, os.Remove(text))
}

// serve starts Prometheus and returns its address and a function that ends it.
func serve(ctx context.Context, prometheus, dir string) (string, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {}\n"), 0o600); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+address, "--log.level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		cancel()
		return "", nil, err
	}
	stop := func() { cancel(); _ = cmd.Wait() }
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		reply, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			_ = reply.Body.Close()
			if reply.StatusCode == http.StatusOK {
				return "http://" + address, stop, nil
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			stop()
			return "", nil, fmt.Errorf("%s does not become ready", prometheus)
		}
	}
}

func get(ctx context.Context, address string) (json.RawMessage, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result json.RawMessage }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, errors.New(answer.Error)
	}
	return answer.Data.Result, nil
}
