// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	upstream "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// cdiCache is an open registry or upstream cache.
type cdiCache struct {
	has   func(device string) bool
	close func()
}

// cdiSide opens the registry or the upstream cache of a directory.
type cdiSide struct {
	name string
	open func(tb testing.TB, dir string) cdiCache
}

// cdiCaches has the two sides that every CDI benchmark compares.
var cdiCaches = []cdiSide{
	{"jackfield", func(tb testing.TB, dir string) cdiCache {
		r, err := cdi.NewCache(cdi.Options{SpecDirs: []string{dir}})
		if err != nil {
			tb.Fatal(err)
		}
		r.Snapshot()
		return cdiCache{
			has:   func(name string) bool { _, err := r.Snapshot().Device(name); return err == nil },
			close: func() { r.Close() },
		}
	}},
	{"upstream", func(tb testing.TB, dir string) cdiCache {
		c, err := upstream.NewCache(upstream.WithSpecDirs(dir))
		if err != nil {
			tb.Fatal(err)
		}
		return cdiCache{
			has: func(name string) bool { return c.GetDevice(name) != nil },
			// It has no Close. Without directories it watches nothing.
			close: func() { _ = c.Configure(upstream.WithAutoRefresh(false), upstream.WithSpecDirs("/nonexistent")) },
		}
	}},
}

// BenchmarkCDIAdd measures the time from a rename until the device is found, and the share of
// first lookups that miss it. ns/op is the mean, p50-ns the median.
func BenchmarkCDIAdd(b *testing.B) {
	for _, n := range cdiSizes {
		for _, side := range cdiCaches {
			b.Run(fmt.Sprintf("n=%d/%s", n, side.name), func(b *testing.B) {
				dir := cdiDirectory(b, n)
				c := side.open(b, dir)
				defer c.close()
				if !c.has(cdiQualified(0, 0)) {
					b.Fatal("a device is missing")
				}
				took := make([]time.Duration, b.N)
				misses := 0
				runtime.GC()
				for i := range took {
					took[i] = cdiAdd(b, c, dir, n+i, &misses)
					// Remove the file again, so that the directory keeps n files.
					if err := os.Remove(cdiFile(dir, n+i)); err != nil {
						b.Fatal(err)
					}
					for c.has(cdiQualified(n+i, 0)) {
						time.Sleep(time.Millisecond)
					}
				}
				var sum time.Duration
				for _, t := range took {
					sum += t
				}
				b.ReportMetric(float64(sum.Nanoseconds())/float64(b.N), "ns/op")
				b.ReportMetric(quantile(took, 50), "p50-ns")
				b.ReportMetric(100*float64(misses)/float64(b.N), "%missed")
			})
		}
	}
}

// cdiAdd renames a file into place and returns the time until its device is found.
func cdiAdd(b *testing.B, c cdiCache, dir string, file int, misses *int) time.Duration {
	cdiPlace(b, dir, file)
	name := cdiQualified(file, 2)
	start := time.Now()
	if !c.has(name) {
		*misses++
		for !c.has(name) {
			runtime.Gosched()
		}
	}
	return time.Since(start)
}

// BenchmarkCDILookupUnderWrites measures single lookups while ten files a second are renamed
// into place. One iteration lasts a second.
func BenchmarkCDILookupUnderWrites(b *testing.B) {
	for _, n := range cdiSizes {
		for _, side := range cdiCaches {
			b.Run(fmt.Sprintf("n=%d/%s", n, side.name), func(b *testing.B) {
				dir := cdiDirectory(b, n)
				c := side.open(b, dir)
				defer c.close()
				var took []time.Duration
				for range b.N {
					took = append(took, cdiUnderWrites(b, c, dir, n, time.Second)...)
				}
				b.ReportMetric(quantile(took, 50), "p50-ns")
				b.ReportMetric(quantile(took, 99), "p99-ns")
				b.ReportMetric(float64(slices.Max(took)), "max-ns")
			})
		}
	}
}

func cdiUnderWrites(b *testing.B, c cdiCache, dir string, n int, d time.Duration) []time.Duration {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := n; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				cdiPlace(b, dir, n+i%20)
			}
		}
	})
	var took []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); {
		start := time.Now()
		if !c.has(cdiQualified(len(took)%n, 1)) {
			b.Error("a device is missing")
		}
		took = append(took, time.Since(start))
		time.Sleep(500 * time.Microsecond)
	}
	close(stop)
	wg.Wait()
	return took
}

// BenchmarkCDIHeap measures the heap that one loaded file takes.
func BenchmarkCDIHeap(b *testing.B) {
	for _, n := range cdiSizes {
		dir := cdiDirectory(b, n)
		for _, side := range cdiCaches {
			b.Run(fmt.Sprintf("n=%d/%s", n, side.name), func(b *testing.B) {
				var held float64
				for range b.N {
					before := cdiHeap()
					c := side.open(b, dir)
					if !c.has(cdiQualified(n-1, 3)) {
						b.Fatal("a device is missing")
					}
					held = float64(cdiHeap()-before) / float64(n)
					c.close()
				}
				b.ReportMetric(held, "heap-B/file")
			})
		}
	}
}

func cdiHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
