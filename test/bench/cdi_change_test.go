// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// cdiCache is what both sides offer to a benchmark.
type cdiCache struct {
	has   func(device string) bool
	close func()
	blind bool // has looks at nothing
}

// cdiSide opens one side on a directory.
type cdiSide struct {
	name string
	open func(tb testing.TB, dir string) cdiCache
}

// cdiCaches are the sides: ours, upstream's, and what nobody can do without.
var cdiCaches = []cdiSide{
	{"floor", cdiFloor},
	{"jackfield", func(tb testing.TB, dir string) cdiCache {
		r, err := cdiregistry.New(hostfs.Host(), []string{dir}, cdiregistry.Options{})
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
		c, err := cdi.NewCache(cdi.WithSpecDirs(dir))
		if err != nil {
			tb.Fatal(err)
		}
		return cdiCache{
			has: func(name string) bool { return c.GetDevice(name) != nil },
			// Without directories it watches nothing any more; it has no Close.
			close: func() { _ = c.Configure(cdi.WithAutoRefresh(false), cdi.WithSpecDirs("/nonexistent")) },
		}
	}},
}

// BenchmarkCDIAdd is the time from a rename to the device being found, and the
// share of first lookups that miss it. ns/op is the mean, p50-ns the median.
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
					// It goes again, so that n stays what it is.
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

// cdiAdd is how long it takes until a file that was just renamed into place is found.
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

// BenchmarkCDILookup is a lookup when nothing changes.
func BenchmarkCDILookup(b *testing.B) {
	for _, n := range cdiSizes {
		dir := cdiDirectory(b, n)
		for _, side := range cdiCaches[1:] {
			b.Run(fmt.Sprintf("n=%d/%s", n, side.name), func(b *testing.B) {
				c := side.open(b, dir)
				defer c.close()
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if !c.has(cdiQualified(i%n, i%cdiDevices)) {
						b.Fatal("a device is missing")
					}
					i++
				}
			})
		}
	}
}

// BenchmarkCDILookupUnderWrites is the distribution of single lookups while ten
// files a second are renamed into place. One iteration is a second.
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

// BenchmarkCDIAddMany is the processor time that 100 files cost which are added
// one after the other, each looked up at once, until nothing is done about them any
// more. "nobody" is
// what writing them costs, which is in the other two.
func BenchmarkCDIAddMany(b *testing.B) {
	const added = 100
	nobody := cdiSide{"nobody", func(testing.TB, string) cdiCache {
		return cdiCache{blind: true, has: func(string) bool { return true }, close: func() {}}
	}}
	for _, n := range cdiSizes {
		for _, side := range append([]cdiSide{nobody}, cdiCaches[1:]...) {
			b.Run(fmt.Sprintf("n=%d/%s", n, side.name), func(b *testing.B) {
				dir := cdiDirectory(b, n)
				c := side.open(b, dir)
				defer c.close()
				texts := make([][]byte, added)
				for i := range texts {
					texts[i] = cdiSpec(n + i)
				}
				var cpu time.Duration
				for range b.N {
					b.StopTimer()
					for i := range added {
						os.Remove(cdiFile(dir, n+i))
					}
					for !c.blind && (c.has(cdiQualified(n, 0)) || c.has(cdiQualified(n+added-1, 0))) {
						time.Sleep(time.Millisecond)
					}
					before := cdiCPU(b)
					b.StartTimer()
					for i := range added {
						if err := os.WriteFile(dir+"/.tmp", texts[i], 0o644); err != nil {
							b.Fatal(err)
						}
						if err := os.Rename(dir+"/.tmp", cdiFile(dir, n+i)); err != nil {
							b.Fatal(err)
						}
						c.has(cdiQualified(n+i, 0))
					}
					for !c.has(cdiQualified(n+added-1, 0)) {
						time.Sleep(time.Millisecond)
					}
					b.StopTimer()
					cpu += cdiSettled(b) - before
					b.StartTimer()
				}
				b.ReportMetric(float64(cpu.Microseconds())/float64(b.N)/1e3, "cpu-ms/op")
			})
		}
	}
}

// cdiSettled is the processor time of the process once it uses no more: upstream
// goes on to read everything again for announcements it has not come to yet.
func cdiSettled(tb testing.TB) time.Duration {
	used := cdiCPU(tb)
	for {
		time.Sleep(100 * time.Millisecond)
		now := cdiCPU(tb)
		if now-used < time.Millisecond {
			return used
		}
		used = now
	}
}

func cdiCPU(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCDIHeap is the heap that a loaded file holds.
func BenchmarkCDIHeap(b *testing.B) {
	for _, n := range cdiSizes {
		dir := cdiDirectory(b, n)
		for _, side := range cdiCaches[1:] {
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
